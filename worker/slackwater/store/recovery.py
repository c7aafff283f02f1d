"""Claims taken away from executions that can't or mustn't end them. Rule: a take-away restates its premise (rule 3).

The claim's row is locked by a statement that says again what was read (running, epoch, token) and why (its ground);
what follows is decided on what the rows say then, and written in the same transaction. The token is cleared, so that
every later write of that execution is refused. If the lease was still live, the execution may act until its end: the
task is not claimable before, and its token stays in `old_token`, unless a witness saw the execution die (rule 9).
"""

from __future__ import annotations

import logging
from typing import Any, assert_never
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.claim import UNDECLARED, Declaration, Ground, RunningClaim, TaskState
from slackwater.errors import SlotsUnavailable
from slackwater.slots import Slots, scopes
from slackwater.store import Store, events, registration
from slackwater.store.fence import count, count_within
from slackwater.store.settling import Facts, Verdict, facts, settle, tell
from slackwater.store.sql import sql
from slackwater.store.writing import TASKS_REQUEUED, interrupted

STALE_TASKS_FINALIZED = "stale_tasks_finalized"
ORPHANED_SLOTS_RELEASED = "orphaned_slots_released"

_log = logging.getLogger(__name__)

_RUNNING = sql("""
    SELECT k.task_id, k.epoch, k.token, k.worker_id, coalesce(w.pod_uid, '') AS pod_uid,
           coalesce(w.pool_uid, '') AS pool_uid, k.lease_until, k.lease_until > clock_timestamp() AS live,
           k.type, k.queue, k.user_id, k.channel, k.active_at, k.claimed_at, t.updated_at, clock_timestamp() AS read_at,
           EXISTS (SELECT FROM {s}.submission u WHERE u.task_id = k.task_id AND u.outcome IS NULL) AS submission_open
    FROM {s}.claim k JOIN {s}.task t ON t.id = k.task_id LEFT JOIN {s}.worker w ON w.id = k.worker_id
    WHERE k.state = 'running'
      AND (CAST(:task_id AS uuid) IS NULL OR k.task_id = :task_id)
      AND (CAST(:worker_id AS text) IS NULL OR k.worker_id = :worker_id)
      AND (CAST(:pod_uid AS text) IS NULL OR w.pod_uid = :pod_uid)
      AND (NOT :expired OR k.lease_until <= clock_timestamp())
    ORDER BY k.lease_until
""")
# The ground of a drain's deadline is the pod's cordon: share-locked first (lock order), so that it can't be called off.
_DEADLINE_PASSED = sql("""
    SELECT FROM {s}.cordon c JOIN {s}.worker w ON w.pod_uid = c.pod_uid
    WHERE w.id = :worker_id AND c.since IS NOT NULL
      AND c.deadline <= clock_timestamp() - make_interval(secs => :margin)
    FOR SHARE OF c
""")
_LOCK = sql("""
    SELECT k.type FROM {s}.claim k
    WHERE k.task_id = :task_id AND k.state = 'running' AND k.epoch = :epoch AND k.token = :token
      AND (NOT :expired OR k.lease_until <= clock_timestamp())
      AND (NOT :idle OR k.active_at = :active_at)
    FOR UPDATE
""")
_UNTOUCHED = sql("SELECT FROM {s}.task WHERE id = :task_id AND updated_at = :updated_at FOR NO KEY UPDATE")
_DECLARATIONS = sql("SELECT name, declaration FROM {s}.task_type")
_DECLARED = sql("SELECT declaration FROM {s}.task_type WHERE name = :type")


async def running_claims(
    store: Store,
    *,
    task_id: UUID | None = None,
    pod_uid: str | None = None,
    worker_id: str | None = None,
    expired: bool = False,
) -> list[RunningClaim]:
    """Running claims as they stand, oldest lease first; `expired`: only those whose lease is over."""
    values = {"task_id": task_id, "pod_uid": pod_uid, "worker_id": worker_id, "expired": expired}
    async with store.transaction() as connection:
        rows = (await connection.execute(_RUNNING, values)).mappings()
        return [RunningClaim(**row) for row in rows]


async def declarations(store: Store) -> dict[str, Declaration]:
    """What the registered task types declare, by name."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_DECLARATIONS)).all()
    return {row.name: Declaration.read(row.declaration) for row in rows}


async def take_away(store: Store, seen: RunningClaim, ground: Ground, *, policy: Declaration | None = None) -> bool:
    """Take one claim away on that ground; False: the premise no longer holds and nothing changed.

    `policy`: the type's declaration, read from the store when None; a type that nobody declared is never repeated.
    What becomes of the task: EXPIRED, WITNESSED and DEADLINE are interruptions (rule 13; the first two count towards
    the cap); STALE, HARD_TIMEOUT and ADMIN fail it, CANCELLED cancels it: these end it, so an open submission makes it
    unknown.
    Its slots are the caller's (`give_back`), and only when the lease was over or a witness saw the end.
    """
    async with store.transaction() as connection:
        if ground is Ground.DEADLINE and not await _deadline_passed(connection, store, seen):
            return False
        declared = policy or await _declaration(connection, seen.type)
        idle = ground is Ground.STALE
        values = {
            "task_id": seen.task_id,
            "epoch": seen.epoch,
            "token": seen.token,
            "expired": ground is Ground.EXPIRED,
            "idle": idle and not declared.fed,
            "active_at": seen.active_at,
        }
        if (await connection.execute(_LOCK, values)).one_or_none() is None:
            return False
        if idle and declared.fed and not await _untouched(connection, seen):
            return False
        known = await facts(connection, seen.task_id)
        verdict = _verdict(ground, declared, known, cap=store.constants.interruption_cap)
        await settle(connection, seen.task_id, seen.epoch, verdict, known)
        data: dict[str, Any] = verdict.error or {}
        await events.add_foreign(
            connection, seen.task_id, epoch=seen.epoch, kind=verdict.state.value, data={"ground": ground.value, **data}
        )
        queued = verdict.state is TaskState.QUEUED
        await tell(connection, queue=seen.queue if queued else None, worker_id=seen.worker_id)
        if queued:
            await count_within(connection, seen.worker_id, TASKS_REQUEUED)
        elif ground is Ground.STALE:
            await count_within(connection, seen.worker_id, STALE_TASKS_FINALIZED)
    return True


async def witness(
    store: Store, worker_id: str, policy: Declaration | None = None, *, slots: Slots | None = None
) -> int:
    """Somebody saw that worker die (rule 9): end it and take every claim of it back at once; returns how many.

    With `slots`, their slots are given back together with the tasks; without, expiry frees them.
    """
    await registration.end_worker(store, worker_id, "witnessed")
    taken = 0
    for seen in await running_claims(store, worker_id=worker_id):
        if await take_away(store, seen, Ground.WITNESSED, policy=policy):
            taken += 1
            if slots is not None:
                await give_back(store, slots, seen)
    return taken


async def give_back(store: Store, slots: Slots, seen: RunningClaim) -> bool:
    """Give back the slots of a claim that was taken away; only if its lease was over or its death witnessed.

    Best effort: a failure is logged, and expiry heals it (R-SLOT-11).
    """
    held = scopes(pool_uid=seen.pool_uid, channel=seen.channel, user_id=seen.user_id)
    try:
        released = await slots.release(seen.token, held)
    except SlotsUnavailable as error:
        _log.warning("slots of a lost execution not given back, they expire: %s", error)
        return False
    if released.scopes:
        await count(store, seen.worker_id, ORPHANED_SLOTS_RELEASED)
    return released.scopes > 0


def _verdict(ground: Ground, declared: Declaration, known: Facts, *, cap: int) -> Verdict:
    ending = TaskState.UNKNOWN if known.open else TaskState.FAILED
    match ground:
        case Ground.EXPIRED:
            reason = "the worker's lease ran out"
            return interrupted(known, reason=reason, on_interrupt=declared.lost, counts=True, cap=cap, fenced=True)
        case Ground.WITNESSED:
            return interrupted(known, reason="the worker died", on_interrupt=declared.lost, counts=True, cap=cap)
        case Ground.DEADLINE:
            return interrupted(
                known, reason="DrainDeadline", on_interrupt=declared.on_interrupt, counts=False, fenced=True
            )
        case Ground.STALE if declared.fed:
            return Verdict(ending, "ProducerSilent", "nothing came from the producer any more", fenced=True)
        case Ground.STALE:
            return Verdict(ending, "WorkerInterrupted", "no activity within the type's limit", fenced=True)
        case Ground.CANCELLED:
            ended = TaskState.UNKNOWN if known.open else TaskState.CANCELLED
            return Verdict(ended, "Cancelled", "cancelled on request", fenced=True, on_request=True)
        case Ground.HARD_TIMEOUT:
            return Verdict(ending, "HardTimeout", "ran longer than its type's hard time-out", attempts=1, fenced=True)
        case Ground.ADMIN:
            return Verdict(ending, "Finalized", "ended by an administrator", fenced=True)
        case _:
            assert_never(ground)


async def _declaration(connection: AsyncConnection, type_name: str) -> Declaration:
    document = (await connection.execute(_DECLARED, {"type": type_name})).scalar_one_or_none()
    return UNDECLARED if document is None else Declaration.read(document)


async def _deadline_passed(connection: AsyncConnection, store: Store, seen: RunningClaim) -> bool:
    values = {"worker_id": seen.worker_id, "margin": store.constants.hand_back_margin_seconds}
    return (await connection.execute(_DEADLINE_PASSED, values)).one_or_none() is not None


async def _untouched(connection: AsyncConnection, seen: RunningClaim) -> bool:
    """Real activity of the producer also writes `updated_at`: unchanged, nothing came since the signal was read."""
    values = {"task_id": seen.task_id, "updated_at": seen.updated_at}
    return (await connection.execute(_UNTOUCHED, values)).one_or_none() is not None
