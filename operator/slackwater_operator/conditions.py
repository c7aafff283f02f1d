"""Conditions. Rule: yes or no, a reason from the closed list, and a sentence that names what is waited for.

kstatus: Stalled=True reads as failed, Reconciling=True as in progress; Ready is always there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater_operator.drain import FAR_FUTURE, OVERDUE_AFTER, Look, Standing
from slackwater_operator.names import LABEL_POOL, LABEL_PROTECTED, LABEL_REVISION, Condition, Reason
from slackwater_operator.revisions import Revisions
from slackwater_operator.rollout import Tally
from slackwater_operator.seen import Observation
from slackwater_operator.spec import PoolSpec

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError", "ErrImageNeverPull"})
_CRASH = frozenset({"CrashLoopBackOff", "StartError", "RunContainerError", "Error", "OOMKilled", "Completed"})
_NAMED = 3


@dataclass(frozen=True)
class Problem:
    """Something that acting met: what the API server or the parser said."""

    reason: Reason
    message: str


Answer = tuple[bool, Reason, str]


def conditions(
    *,
    spec: PoolSpec,
    seen: Observation,
    views: tuple[Look, ...],
    chosen: Revisions,
    count: Tally,
    now: datetime,
    problems: tuple[Problem, ...],
) -> list[dict[str, Any]]:
    progressing = _progressing(spec, views, chosen, count, problems)
    stalled = _stalled(seen, problems)
    busy = progressing[1] not in (Reason.COMPLETE, Reason.PAUSED, Reason.CANARY, Reason.SCALED_TO_ZERO)
    answers: dict[Condition, Answer] = {
        Condition.READY: _ready(spec, count, seen),
        Condition.PROGRESSING: progressing,
        Condition.DRAINING: _draining(views, now),
        Condition.STORE_REACHABLE: (
            (True, Reason.REACHABLE, "the store answered")
            if seen.store is not None
            else (False, Reason.UNREACHABLE, seen.store_error or "the store gave no answer")
        ),
        Condition.ROLLOUT_FAILED: _failed(chosen, spec),
        Condition.EVICTION_BLOCKED: _blocked(spec, seen),
        Condition.RECONCILING: (
            (True, progressing[1], progressing[2]) if busy else (False, Reason.SETTLED, "as desired")
        ),
        Condition.STALLED: stalled,
    }
    return [
        {
            "type": kind.value,
            "status": str(answer),
            "reason": reason.value,
            "message": message[:1024],
            "observedGeneration": spec.generation,
        }
        for kind, (answer, reason, message) in answers.items()
    ]


def _ready(spec: PoolSpec, count: Tally, seen: Observation) -> Answer:
    if spec.desired == 0:
        return True, Reason.SCALED_TO_ZERO, "no pods are wanted"
    if seen.store is None:
        return False, Reason.UNREACHABLE, "the store gave no answer"
    serving = sum(v.serving for v in count.active)
    words = f"{serving} of {spec.desired} pods serve"
    return (True, Reason.ALL_READY, words) if serving >= spec.desired else (False, Reason.TOO_FEW_READY, words)


def trouble(views: Iterable[Look]) -> tuple[Reason, str] | None:
    """The first pod that does not come to work, in the closed list's word and the kubelet's own."""
    for view in views:
        found = view.pod.trouble
        if found is None or view.standing is not Standing.ACTIVE:
            continue
        words = f"{view.pod.name}: {found.reason}: {found.message}"
        if found.reason in _IMAGE:
            return Reason.IMAGE_PULL, words
        if found.reason in _CRASH:
            return Reason.CRASH_LOOP, words
        if found.reason == Reason.UNSCHEDULABLE:
            return Reason.UNSCHEDULABLE, words
        return Reason.CONFIG_ERROR, words
    return None


def _progressing(
    spec: PoolSpec, views: tuple[Look, ...], chosen: Revisions, count: Tally, problems: tuple[Problem, ...]
) -> Answer:
    if spec.deleting:
        return True, Reason.DELETING, "the pool is being deleted; its pods drain"
    if chosen.failed and not chosen.rolled_back:
        names = ", ".join(chosen.failing[:_NAMED])
        return False, Reason.PROGRESS_DEADLINE_EXCEEDED, f"not ready in time: {names}"
    if problems:
        return False, problems[0].reason, problems[0].message
    wrong = trouble(views)
    if wrong:
        return False, *wrong
    target = f"{count.new} of {spec.desired} pods have revision {chosen.update}"
    if count.rolling or count.new - count.unproven < spec.desired - count.kept:
        if spec.rollout.paused and count.old:
            return False, Reason.PAUSED, target
        rolling = count.rolling or chosen.current != chosen.update
        return True, Reason.ROLLING_OUT if rolling else Reason.SCALING, target
    draining = [v for v in views if v.standing in (Standing.DRAINING, Standing.ENDED)]
    if draining:
        return True, Reason.WAITING_FOR_DRAIN, _waits_for(draining)
    if chosen.rolled_back:
        return True, Reason.ROLLED_BACK, f"back on {chosen.update}; {chosen.written} was not ready in time"
    if count.kept:
        return True, Reason.CANARY, f"{count.kept} pods stay on {chosen.current} (rollout.partition)"
    return True, Reason.COMPLETE, target


def _draining(views: tuple[Look, ...], now: datetime) -> Answer:
    draining = [
        v for v in views if v.standing is Standing.DRAINING or (v.standing is Standing.TERMINATING and v.leases)
    ]
    if not draining:
        stuck = [v for v in views if v.standing is Standing.TERMINATING and v.pod.finalizers and not v.pod.running]
        if stuck:
            return True, Reason.HELD_BY_FINALIZERS, _waits_for(stuck)
        return False, Reason.NONE_DRAINING, "no pod drains"
    late = any(v.cordon and v.cordon.deadline and now >= v.cordon.deadline + OVERDUE_AFTER for v in draining)
    return True, Reason.DEADLINE_PASSED if late else Reason.PODS_DRAINING, _waits_for(draining)


def _waits_for(views: Iterable[Look]) -> str:
    """Which pod is waited for, since when and until when."""
    ordered = sorted(views, key=lambda v: (v.cordon.deadline or FAR_FUTURE if v.cordon else FAR_FUTURE, v.pod.name))
    parts = [_one(v) for v in ordered[:_NAMED]]
    more = len(ordered) - _NAMED
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _one(view: Look) -> str:
    if view.cordon is None:
        return f"{view.pod.name} ({view.cause or 'ended'})"
    until = f" until {view.cordon.deadline:%H:%MZ}" if view.cordon.deadline else " without a deadline"
    stuck = (
        f", held by finalizers {', '.join(view.pod.finalizers)}" if view.pod.deleting and view.pod.finalizers else ""
    )
    return (
        f"{view.pod.name} ({view.cause}) with {len(view.leases)} leases, since {view.cordon.since:%H:%MZ}{until}{stuck}"
    )


def _failed(chosen: Revisions, spec: PoolSpec) -> Answer:
    if not chosen.failed:
        return False, Reason.NOT_FAILED, "no rollout failed"
    if chosen.rolled_back:
        return True, Reason.ROLLED_BACK, f"{chosen.written} was not ready in time; back on {chosen.update}"
    limit = int(spec.rollout.progress_deadline.total_seconds())
    return True, Reason.PROGRESS_DEADLINE_EXCEEDED, f"not ready within {limit} s: {', '.join(chosen.failing[:_NAMED])}"


def _blocked(spec: PoolSpec, seen: Observation) -> Answer:
    """Two budgets over one pod make every eviction fail, so a second one is named."""
    if spec.budget:
        labels = {LABEL_POOL: spec.name, LABEL_PROTECTED: "true", **dict(seen.template_labels)}
        for budget in seen.budgets:
            wants = dict(budget.selects)
            matches = all(labels.get(k) == v for k, v in wants.items()) and LABEL_REVISION not in wants
            if not budget.ours and wants and matches:
                words = f"PodDisruptionBudget {budget.name} selects this pool's pods too; evictions of them fail"
                return True, Reason.SECOND_BUDGET, words
    return False, Reason.NOT_BLOCKED, "no second budget selects these pods"


def _stalled(seen: Observation, problems: tuple[Problem, ...]) -> Answer:
    """Only what needs a person: kstatus takes it for failed, so a busy API server is no reason."""
    lasting = [p for p in problems if p.reason is not Reason.API_UNAVAILABLE]
    if lasting:
        return True, lasting[0].reason, lasting[0].message
    if seen.nodes is None:
        return False, Reason.NODES_UNREADABLE, "no right to read nodes: no node is drained"
    return False, Reason.NOT_STALLED, "nothing is in the way"
