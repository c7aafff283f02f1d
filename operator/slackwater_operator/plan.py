"""plan(spec, seen, now) → Plan. Rule: the safety rule first, then what is forced, then what is wished.

Order: what death demands · deletes of the condemned, so that an operator that never gets far still cleans up · drains
called off by hand · forced drains · replacements, shrinking and rolling · the next step of every other pod that goes ·
labels, budget, revisions. Decisions (create, drain, call off) are
a fixed point: planned again on their own outcome they are empty; what follows then is only the walk of a draining
pod, one statement at a time. A pod that is not condemned is never deleted, whatever its phase.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from slackwater_operator.actions import (
    Action,
    Budget,
    CallOff,
    Condemn,
    Create,
    Delete,
    Drain,
    Mark,
    Plan,
    Protect,
    TakeAway,
)
from slackwater_operator.drain import Look, Standing, Step, look, next_step
from slackwater_operator.names import Cause
from slackwater_operator.pods import free_names
from slackwater_operator.recovery import vanished, witnessed
from slackwater_operator.revisions import Revisions, choose, upkeep
from slackwater_operator.rollout import Tally, tally
from slackwater_operator.seen import Observation
from slackwater_operator.spec import GRACE_MARGIN, PoolSpec
from slackwater_operator.supply import Supply
from slackwater_operator.waking import look_again

PROTECT_AFTER = timedelta(seconds=10)
UNPROTECT_AFTER = timedelta(seconds=60)
DELETE_GRACE = timedelta(seconds=30)
"""Of a pod past its deadline; any other gets the grace it was made with, and leaves at once since it is idle."""


def plan(spec: PoolSpec, seen: Observation, now: datetime) -> Plan:
    views = tuple(look(seen, pod, now) for pod in seen.pods)
    chosen = choose(spec, seen, views, now)
    if seen.store is None:
        return _blind(spec, seen, views, chosen)
    actions: list[Action] = [*witnessed(seen), *vanished(seen)]
    forced, views = _forced(spec, views, now)
    steps = _steps(spec, views, now)
    last, other = [s for s in steps if _is_last(s)], [s for s in steps if not _is_last(s)]
    actions += last
    if not spec.deleting:
        actions += _lifted(views)
        actions += forced
        count = tally(spec, chosen, views, now)
        taken = {pod.name for pod in seen.pods}
        actions += Supply(count, taken, {r.name for r in seen.revisions}).decide()
    actions += other
    actions += _protection(spec, seen, views, now)
    if not spec.deleting:
        actions += _budget(spec, seen)
        in_use = {pod.revision for pod in seen.pods}
        complete = is_complete(tally(spec, chosen, views, now))
        actions += upkeep(spec, seen, chosen, complete=complete, in_use=in_use)
    return Plan(tuple(actions), look_again(spec, seen, views, chosen, now))


def _is_last(action: Action) -> bool:
    """Of a pod's steps: the delete, and the label off before it."""
    return isinstance(action, Delete | Protect)


def is_complete(count: Tally) -> bool:
    """Every replica serves the wanted revision, for as long as minReadySeconds asks, and no old one is left active."""
    proven = count.new - count.unproven
    return count.spec.desired > 0 and count.old == 0 and proven >= count.spec.desired


def _blind(spec: PoolSpec, seen: Observation, views: tuple[Look, ...], chosen: Revisions) -> Plan:
    """The store gave no answer: nothing is drained or deleted; what is provably gone is replaced, up to replicas."""
    if spec.deleting:
        return Plan()
    actions: list[Action] = []
    present = sum(not pod.ended for pod in seen.pods)
    known = {r.name for r in seen.revisions}
    revision = chosen.current if chosen.current in known else chosen.update
    if revision in known:
        names = iter(free_names(spec.name, revision, {pod.name for pod in seen.pods}))
        missing = max(0, spec.desired - present)
        actions += [Create(next(names), revision, "the pod is gone; the store gives no answer") for _ in range(missing)]
    wanted = next((r for r in seen.revisions if r.name == chosen.written), None)
    if wanted is not None and chosen.current != chosen.written and not wanted.clock_stopped:
        actions.append(Mark(wanted.name, "clock-stop", "the store gives no answer"))
    return Plan(tuple(actions), timedelta(seconds=5), ("the store gives no answer: nothing is deleted",))


def _lifted(views: tuple[Look, ...]) -> list[Action]:
    return [
        CallOff(v.pod.uid, v.pod.name, v.cordon.sequence, "its annotation was removed")
        for v in views
        if v.lift and v.cordon is not None
    ]


def _forced(spec: PoolSpec, views: tuple[Look, ...], now: datetime) -> tuple[list[Action], tuple[Look, ...]]:
    """Drains that no budget of ours may hold up, and the views as they will be seen then."""
    actions: list[Action] = []
    after: list[Look] = []
    for view in views:
        cause = _must_go(spec, view, now)
        if cause is None:
            after.append(view)
            continue
        pod = view.pod
        annotate = view.standing is not Standing.TERMINATING
        actions.append(
            Drain(pod.uid, pod.name, cause, _limit(spec, view, cause, now), _why(view, cause), annotate=annotate)
        )
        standing = Standing.DRAINING if view.standing is Standing.ACTIVE else view.standing
        marked = replace(pod, cause=cause) if annotate else pod
        after.append(replace(view, standing=standing, pod=marked, lift=False))
    return actions, tuple(after)


def _must_go(spec: PoolSpec, view: Look, now: datetime) -> Cause | None:
    if view.condemned:
        return None
    cordon = view.cordon
    if view.standing is Standing.ENDED:
        return None if cordon else Cause.GONE
    if view.standing is Standing.TERMINATING:
        return None if cordon else Cause.TERMINATED
    if view.going is not None:
        limit = spec.deadline(view.going)
        hurry = limit is not None and (cordon is None or cordon.deadline is None or now + limit < cordon.deadline)
        unmarked = view.pod.cause is None and (cordon is None or cordon.ours)
        return view.going if unmarked or hurry or cordon is None else None
    if view.standing is Standing.DRAINING and (cordon is None or _needs_deadline(spec, view)):
        return _known(view.cause)
    return None


def _needs_deadline(spec: PoolSpec, view: Look) -> bool:
    """A worker cordoned itself without one (its code is stubborn): it gets the pool's."""
    return view.cordon is not None and view.cordon.deadline is None and not spec.drain.waits and not view.cordon.ours


def _known(cause: str) -> Cause:
    return Cause(cause) if cause in set(Cause) else Cause.ADMIN


def _limit(spec: PoolSpec, view: Look, cause: Cause, now: datetime) -> timedelta | None:
    if cause is Cause.TERMINATED and view.pod.deleting is not None:
        return max(timedelta(0), view.pod.deleting - now - GRACE_MARGIN)
    return spec.deadline(cause)


def _why(view: Look, cause: Cause) -> str:
    if view.standing is Standing.ENDED:
        return f"the pod has ended: {view.pod.trouble.message if view.pod.trouble else view.pod.phase}"
    if view.standing is Standing.TERMINATING:
        return "somebody deleted it"
    return f"node {view.pod.node} is going" if view.going else f"resumed: {cause}"


def _steps(spec: PoolSpec, views: tuple[Look, ...], now: datetime) -> list[Action]:
    actions: list[Action] = []
    for view in views:
        if view.lift:
            continue  # its cordon is about to go
        uid, name = view.pod.uid, view.pod.name
        match next_step(view, now):
            case Step.TAKE_AWAY:
                actions.append(TakeAway(uid, name, f"{len(view.leases)} leases past the deadline"))
            case Step.CONDEMN:
                actions.append(Condemn(uid, name, "cordoned, and no lease was seen"))
            case Step.DELETE:
                if view.pod.protected or view.pod.kept:
                    actions.append(Protect(uid, name, label=False, keep=False, reason="drained"))
                deadline = view.cordon.deadline if view.cordon else None
                overdue = deadline is not None and now >= deadline
                actions.append(Delete(uid, name, DELETE_GRACE if overdue else None, f"drained: {view.cause}"))
            case Step.CORDON | Step.WAIT | Step.NONE:
                pass
    return actions


def _protection(spec: PoolSpec, seen: Observation, views: tuple[Look, ...], now: datetime) -> list[Action]:
    actions: list[Action] = []
    for view in views:
        pod = view.pod
        if view.standing in (Standing.TERMINATING, Standing.ENDED) or view.condemned:
            continue
        label = spec.protects and _protects(seen, view, now)
        keep = label and view.going is None
        if (label, keep) != (pod.protected, pod.kept):
            reason = "its work would be lost" if label else "nothing to lose"
            actions.append(Protect(pod.uid, pod.name, label, keep, reason))
    return actions


def _protects(seen: Observation, view: Look, now: datetime) -> bool:
    if view.leases:
        return view.pod.protected or any(now - lease.since >= PROTECT_AFTER for lease in view.leases)
    busy = seen.last_busy.get(view.pod.uid)
    return view.pod.protected and busy is not None and now - busy < UNPROTECT_AFTER


def _budget(spec: PoolSpec, seen: Observation) -> list[Action]:
    there = any(b.ours for b in seen.budgets)
    return [] if there == spec.budget else [Budget(spec.budget, "disruption.podDisruptionBudget")]
