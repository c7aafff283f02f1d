"""Tasks that wait too long. Rule: waiting counts only while the queue is served, and the end restates its premise.

The limit (15 min, or what the type declares; by default at least twice the time of a full queue) counts from the latest
of: pending since, claimable from (a task's `run_at`), the queue's `served_since`, which every round sets to now for a
queue that is paused, held, without a live worker or without a free slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from slackwater.claim import UNDECLARED, Declaration, TaskState
from slackwater.errors import PolicyUnreadable, SlotsUnavailable
from slackwater.slots import Kind, Scope, Slots
from slackwater.store import Store, events
from slackwater.store.policies import read_policy
from slackwater.store.reading import average_duration
from slackwater.store.settling import Verdict, facts, settle
from slackwater.store.sql import TEXTS, sql

_SERVING = sql("""
    SELECT DISTINCT q.name AS queue, w.pool_uid
    FROM {s}.queue q JOIN {s}.worker w ON q.name = ANY(w.queues) AND w.ended_at IS NULL
    JOIN {s}.worker_heartbeat b ON b.worker_id = w.id
      AND b.seen_at > clock_timestamp() - make_interval(secs => :dead)
    JOIN {s}.pool p ON p.uid = w.pool_uid AND p.admission = 'Open'
    JOIN {s}.cordon c ON c.pod_uid = w.pod_uid AND c.since IS NULL
    WHERE NOT q.paused
""")
_UNSERVED = sql(
    "UPDATE {s}.queue SET served_since = clock_timestamp() WHERE name <> ALL(:served) RETURNING name", served=TEXTS
)
_WAITING = """
    FROM {s}.claim k JOIN {s}.task t ON t.id = k.task_id LEFT JOIN {s}.queue q ON q.name = k.queue
    WHERE k.state = 'queued'
      AND greatest(t.pending_since, k.claimable_from, q.served_since)
          < clock_timestamp() - make_interval(secs => :limit)
"""
_OVERDUE = sql("SELECT k.task_id, k.epoch, k.type, k.queue" + _WAITING + "ORDER BY t.pending_since")
_LOCK = sql("SELECT k.task_id" + _WAITING + "AND k.task_id = :task_id AND k.epoch = :epoch FOR UPDATE OF k")


@dataclass(frozen=True)
class Overdue:
    """A task that waited longer than its limit, as read."""

    task_id: UUID
    epoch: int
    type: str
    queue: str
    limit_seconds: float


async def mark_unserved(store: Store, slots: Slots) -> list[str]:
    """Set `served_since` of every queue that nobody could have served just now; returns their names.

    If Redis or the policy is out of reach nothing is claimed, so no queue is served.
    """
    async with store.transaction() as connection:
        values = {"dead": store.constants.heartbeat_dead_seconds}
        serving = [(row.queue, row.pool_uid) for row in await connection.execute(_SERVING, values)]
    free = await _free_pools(store, slots, sorted({pool_uid for _, pool_uid in serving}))
    served = sorted({queue for queue, pool_uid in serving if pool_uid in free})
    async with store.transaction() as connection:
        return list((await connection.execute(_UNSERVED, {"served": served})).scalars())


async def overdue(store: Store, declared: Mapping[str, Declaration]) -> list[Overdue]:
    """Queued tasks past their type's limit."""
    own = [declaration.pending_seconds for declaration in declared.values() if declaration.pending_seconds]
    async with store.transaction() as connection:
        values = {"limit": min([store.constants.pending_seconds, *own])}
        rows = (await connection.execute(_OVERDUE, values)).all()
    if not rows:
        return []
    usual = await default_limit(store)
    limits = {row.type: declared.get(row.type, UNDECLARED).pending_seconds or usual for row in rows}
    return [Overdue(row.task_id, row.epoch, row.type, row.queue, limits[row.type]) for row in rows]


async def default_limit(store: Store) -> float:
    """Seconds: the larger of the setting and twice the time in which a full queue is worked off."""
    policy = await read_policy(store)
    rounds = -(-policy.system_pending_limit // max(policy.worker_concurrency, 1))
    return max(store.constants.pending_seconds, 2 * rounds * await average_duration(store))


async def time_out(store: Store, task: Overdue) -> bool:
    """Fail it as PendingTimeout, or leave it `unknown` if a submission is open; False: it is no longer overdue."""
    values = {"task_id": task.task_id, "epoch": task.epoch, "limit": task.limit_seconds}
    async with store.transaction() as connection:
        if (await connection.execute(_LOCK, values)).one_or_none() is None:
            return False
        known = await facts(connection, task.task_id)
        state = TaskState.UNKNOWN if known.open else TaskState.FAILED
        verdict = Verdict(state, "PendingTimeout", "waited too long in its queue")
        await settle(connection, task.task_id, task.epoch, verdict, known)
        await events.add_foreign(connection, task.task_id, epoch=task.epoch, kind=state.value, data=verdict.error or {})
    return True


async def _free_pools(store: Store, slots: Slots, pools: list[str]) -> set[str]:
    """Pools with a free slot."""
    try:
        policy = await read_policy(store)
        counts = await slots.count(*(Scope(Kind.POOL, pool_uid) for pool_uid in pools)) if pools else []
    except (PolicyUnreadable, SlotsUnavailable):
        return set()
    return {pool_uid for pool_uid, held in zip(pools, counts, strict=True) if held < policy.pool_limit(pool_uid)}
