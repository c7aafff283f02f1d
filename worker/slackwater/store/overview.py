"""What the operator sees of a pool. Rule: a picture to decide on, never to act on: every act restates its premise.

Cordons and workers are read before claims, so that a claim made meanwhile is seen; one missed is caught by `condemn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from slackwater.store import Store
from slackwater.store.registration import CordonView
from slackwater.store.sql import sql

_POOL = sql("SELECT clock_timestamp() AS now, (SELECT admission FROM {s}.pool WHERE uid = :pool_uid) AS admission")
_CORDONS = sql("""
    SELECT c.pod_uid, c.sequence, c.origin, c.cause, c.since, c.deadline, c.condemned_at IS NOT NULL AS condemned
    FROM {s}.cordon c WHERE c.pod_uid IN (SELECT pod_uid FROM {s}.worker WHERE pool_uid = :pool_uid)
       OR NOT EXISTS (SELECT FROM {s}.worker w WHERE w.pod_uid = c.pod_uid)
""")
_WORKERS = sql("""
    SELECT w.id AS worker_id, w.pod_uid, w.pod_name, w.node, w.revision, w.concurrency, w.registered_at, w.ended_at,
           w.end_reason, b.seen_at, coalesce(b.running, 0) AS running
    FROM {s}.worker w LEFT JOIN {s}.worker_heartbeat b ON b.worker_id = w.id
    WHERE w.pool_uid = :pool_uid ORDER BY w.registered_at, w.id
""")
_LEASES = sql("""
    SELECT w.pod_uid, k.task_id, k.type, k.worker_id, k.claimed_at, k.lease_until,
           k.lease_until > clock_timestamp() AS live, t.progress
    FROM {s}.claim k JOIN {s}.worker w ON w.id = k.worker_id JOIN {s}.task t ON t.id = k.task_id
    WHERE k.state = 'running' AND w.pool_uid = :pool_uid ORDER BY k.claimed_at, k.task_id
""")
_COUNTERS = sql("SELECT name, value FROM {s}.counter WHERE pool_uid = :pool_uid")
_USUAL = sql("""
    SELECT type, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) FROM (
        SELECT k.type, extract(epoch FROM t.finished_at - t.started_at) AS seconds,
               row_number() OVER (PARTITION BY k.type ORDER BY t.finished_at DESC) AS nth
        FROM {s}.claim k JOIN {s}.task t ON t.id = k.task_id
        WHERE k.state = 'done' AND t.finished_at > t.started_at
          AND t.finished_at > clock_timestamp() - interval '1 day') latest
    WHERE nth <= 20 GROUP BY type
""")

_HANDED_BACK = sql("""
    SELECT DISTINCT a.task_id FROM {s}.audit a JOIN {s}.worker w ON w.id = a.who
    WHERE w.pod_uid = :pod_uid AND a.action = 'hand_back' AND a.detail ->> 'reason' = 'DrainDeadline'
    ORDER BY a.task_id
""")


@dataclass(frozen=True)
class WorkerRow:
    """A worker process of the pool, ended ones included; instants by the database's clock."""

    worker_id: str
    pod_uid: str
    pod_name: str
    node: str
    revision: str
    concurrency: int
    registered_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    seen_at: datetime | None
    running: int


@dataclass(frozen=True)
class LeaseRow:
    """A running claim of one of the pool's pods. `live`: its lease was not over."""

    task_id: str
    type: str
    worker_id: str
    claimed_at: datetime
    lease_until: datetime
    live: bool
    progress: float | None


@dataclass(frozen=True)
class Overview:
    """One pool at `now`. `cordons` holds the open rows too, and those of pods that never registered a worker.

    `admission` is None when the pool is not known yet.
    """

    now: datetime
    admission: str | None
    workers: tuple[WorkerRow, ...]
    cordons: Mapping[str, CordonView]
    leases: Mapping[str, tuple[LeaseRow, ...]]
    counters: Mapping[str, int]


async def pool_overview(store: Store, pool_uid: str) -> Overview:
    """Read the pool; leases are keyed by pod uid. Raises StoreUnavailable."""
    values = {"pool_uid": pool_uid}
    async with store.transaction() as connection:
        pool = (await connection.execute(_POOL, values)).one()
        cordons = {row.pod_uid: CordonView(*row) for row in await connection.execute(_CORDONS, values)}
        workers = tuple(WorkerRow(**row) for row in (await connection.execute(_WORKERS, values)).mappings())
        leases: dict[str, list[LeaseRow]] = {}
        for row in await connection.execute(_LEASES, values):
            pod_uid, task_id, *rest = row
            leases.setdefault(pod_uid, []).append(LeaseRow(str(task_id), *rest))
        counters = {row.name: row.value for row in await connection.execute(_COUNTERS, values)}
    return Overview(
        now=pool.now,
        admission=pool.admission,
        workers=workers,
        cordons=cordons,
        leases={pod_uid: tuple(rows) for pod_uid, rows in leases.items()},
        counters=counters,
    )


async def usual_seconds(store: Store) -> dict[str, float]:
    """Median run time per task type over the latest 20 successes of the last day; for estimates. Ask seldom."""
    async with store.transaction() as connection:
        return {name: float(seconds) for name, seconds in await connection.execute(_USUAL)}


async def handed_back(store: Store, pod_uid: str) -> list[str]:
    """Tasks that the pod's workers gave up at a drain's deadline. For telling people; ask once, when the pod goes."""
    async with store.transaction() as connection:
        rows = await connection.execute(_HANDED_BACK, {"pod_uid": pod_uid})
        return [str(task_id) for (task_id,) in rows]
