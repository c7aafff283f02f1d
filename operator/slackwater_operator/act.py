"""Doing what was planned. Rule: it decides nothing; each act is a compare-and-set, and a doubt ends the round.

The intent goes onto the pod before the store is asked, and off it before the store's cordon is lifted. What can't be
done is kept with its own growing pause, so that a refused create is not repeated more than ten times a minute while
everything else goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

import structlog

from slackwater_operator import actions as a
from slackwater_operator import errors, metrics
from slackwater_operator.cache import Cache
from slackwater_operator.conditions import Problem
from slackwater_operator.kube import Kube
from slackwater_operator.leases import Leases
from slackwater_operator.names import ANNOTATION_CAUSE, AUTOSCALER_KEEP, LABEL_PROTECTED, Reason
from slackwater_operator.objects import Objects
from slackwater_operator.spec import PoolSpec

log = structlog.get_logger()
_OnObjects = a.Create | a.Protect | a.Delete | a.Record | a.Mark | a.Forget | a.Budget
_PAUSES = (2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_NAMED_TASKS = 20
"""At most so many tasks are named in events of one act."""


class EndRound(Exception):
    """The picture that the plan was made from no longer holds; look again."""


@dataclass(frozen=True)
class Told:
    reason: str
    note: str
    warning: bool = False


@dataclass
class Outcome:
    changed: bool = False
    problems: list[Problem] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)


@dataclass
class _Pause:
    until: float
    step: int
    problem: Problem


class Actor:
    def __init__(
        self, kube: Kube, leases: Leases, cache: Cache, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._objects = Objects(kube, cache)
        self._leases = leases
        self._clock = clock
        self._pauses: dict[tuple[str, str], _Pause] = {}

    async def run(self, spec: PoolSpec, planned: Iterable[a.Action]) -> Outcome:
        """Carry out in order. Raises StoreUnreachable, Unavailable and NotLeader; anything else becomes a problem."""
        outcome = Outcome()
        for action in planned:
            kind = type(action).__name__
            key = (spec.uid, kind if isinstance(action, a.Create | a.Record | a.Budget) else f"{kind} {action.uid}")
            pause = self._pauses.get(key)
            if pause is not None and self._clock() < pause.until:
                if pause.problem not in outcome.problems:
                    outcome.problems.append(pause.problem)
                continue
            try:
                changed = await self._do(spec, action, outcome)
            except EndRound:
                outcome.changed = True
                return outcome
            except (errors.NotFound, errors.Conflict) as error:
                # The object is another one by now, or gone; the next look will tell.
                log.info("overtaken", pool=spec.name, action=kind, error=str(error))
                changed = True
            except errors.Unavailable:
                metrics.api_errors.labels("Unavailable").inc()
                raise
            except errors.ApiError as error:
                metrics.api_errors.labels(error.reason.value).inc()
                outcome.problems.append(self._put_off(key, error))
                self._count(spec, kind, "refused")
                continue
            self._pauses.pop(key, None)
            outcome.changed |= changed
            self._count(spec, kind, "done" if changed else "nothing")
        return outcome

    def problems(self, uid: str) -> list[Problem]:
        """What is still put off."""
        return [p.problem for key, p in self._pauses.items() if key[0] == uid]

    def next_try(self, uid: str) -> float | None:
        """Seconds until the next attempt at something put off."""
        waits = [p.until - self._clock() for key, p in self._pauses.items() if key[0] == uid]
        return max(0.0, min(waits)) if waits else None

    def settle(self, uid: str, planned: Iterable[a.Action]) -> None:
        """Forget what is no longer wanted."""
        wanted = {type(action).__name__ for action in planned}
        for key in [k for k in self._pauses if k[0] == uid and k[1].split(" ")[0] not in wanted]:
            del self._pauses[key]

    def _put_off(self, key: tuple[str, str], error: errors.ApiError) -> Problem:
        step = min(self._pauses[key].step + 1, len(_PAUSES) - 1) if key in self._pauses else 0
        rejected = isinstance(error, errors.Invalid) and key[1] not in ("Create", "Record")
        problem = Problem(Reason.REFUSED if rejected else error.reason, str(error))
        self._pauses[key] = _Pause(self._clock() + (error.retry_after or _PAUSES[step]), step, problem)
        log.warning("refused", action=key[1], reason=error.reason, error=str(error), again_in=_PAUSES[step])
        return problem

    @staticmethod
    def _count(spec: PoolSpec, kind: str, outcome: str) -> None:
        metrics.actions.labels(spec.namespace, spec.name, kind, outcome).inc()

    async def _do(self, spec: PoolSpec, action: a.Action, outcome: Outcome) -> bool:
        """True: something changed, so look again."""
        match action:
            case a.Condemn():
                return await self._condemn(action, outcome)
            case a.Drain():
                return await self._drain(spec, action, outcome)
            case a.CallOff():
                return await self._call_off(spec, action, outcome)
            case a.TakeAway():
                return await self._take_away(action, outcome)
            case a.Witness():
                return await self._witness(action, outcome)
            case a.Vanish():
                if not await self._objects.pod_is_gone(spec, action.pod, action.uid):
                    return False
                await self._leases.vanish(action.uid)
                return True
            case _:
                await self._on_objects(spec, action, outcome)
                return True

    async def _on_objects(self, spec: PoolSpec, action: _OnObjects, outcome: Outcome) -> None:
        objects = self._objects
        match action:
            case a.Create():
                made = await objects.create_pod(spec, action)
                outcome.told.append(Told("Created", f"{made}: {action.reason}"))
            case a.Protect():
                await objects.annotate_pod(
                    spec,
                    action.pod,
                    action.uid,
                    labels={LABEL_PROTECTED: "true" if action.label else None},
                    annotations={k: v if action.keep else None for k, v in AUTOSCALER_KEEP.items()},
                )
            case a.Delete():
                await objects.delete_pod(spec, action)
                outcome.told.append(Told("Deleted", f"{action.pod}: {action.reason}"))
            case a.Record():
                await objects.record(spec, action)
            case a.Mark():
                await objects.mark(spec, action)
                outcome.told.append(Told("Revision", f"{action.revision} {action.what}: {action.reason}"))
            case a.Forget():
                await objects.forget(spec, action)
            case a.Budget():
                await objects.budget(spec, action)
            case _:
                assert_never(action)

    async def _drain(self, spec: PoolSpec, action: a.Drain, outcome: Outcome) -> bool:
        if action.annotate:
            await self._objects.annotate_pod(spec, action.pod, action.uid, annotations={ANNOTATION_CAUSE: action.cause})
        deadline = await self._leases.cordon(action.uid, action.cause, action.deadline)
        until = f" until {deadline:%H:%M:%SZ}" if deadline else ""
        outcome.told.append(Told("Draining", f"{action.pod} ({action.cause}): {action.reason}{until}"))
        metrics.drains.labels(spec.namespace, spec.name, action.cause.value).inc()
        return True

    async def _call_off(self, spec: PoolSpec, action: a.CallOff, outcome: Outcome) -> bool:
        body = await self._objects.annotate_pod(spec, action.pod, action.uid, annotations={ANNOTATION_CAUSE: None})
        if body["metadata"].get("deletionTimestamp"):
            raise EndRound
        if action.sequence is not None and not await self._leases.call_off(action.uid, action.sequence):
            raise EndRound
        outcome.told.append(Told("DrainCalledOff", f"{action.pod}: {action.reason}"))
        return True

    async def _condemn(self, action: a.Condemn, outcome: Outcome) -> bool:
        if not await self._leases.condemn(action.uid):
            return False
        for task in (await self._leases.handed_back(action.uid))[:_NAMED_TASKS]:
            outcome.told.append(Told("DrainDeadline", f"task {task} was handed back by {action.pod}", warning=True))
        return True

    async def _take_away(self, action: a.TakeAway, outcome: Outcome) -> bool:
        taken = await self._leases.take_away(action.uid)
        for task in taken[:_NAMED_TASKS]:
            outcome.told.append(Told("DrainDeadline", f"task {task} was taken from {action.pod}", warning=True))
        return bool(taken)

    async def _witness(self, action: a.Witness, outcome: Outcome) -> bool:
        freed = await self._leases.witness(action.worker_id)
        outcome.told.append(Told("WorkerDied", f"{action.reason}; {freed} tasks taken back", warning=True))
        return True
