"""Workers and pools in the store. Rule: registration locks the pod's cordon row, and heartbeats never touch it.

So a process that registers while its pod is being cordoned either comes first, and is refused every claim afterwards,
or sees the cordon (rule 7). Cordons themselves are in `cordons`, known here by the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.claim import Identity
from slackwater.schema import POOL_CHANNEL
from slackwater.store import Store
from slackwater.store.cordons import LOCK_CORDON, CordonView, Origin, call_off, condemn, cordon, cordon_view, vanish
from slackwater.store.sql import TEXTS, as_json, sql

__all__ = [
    "CordonView",
    "Heartbeat",
    "Origin",
    "Registered",
    "call_off",
    "condemn",
    "cordon",
    "end_worker",
    "heartbeat",
    "predecessors",
    "refresh_pool",
    "register",
    "vanish",
]


@dataclass(frozen=True)
class Registered:
    """What a worker learns as it registers."""

    cordoned: bool
    deadline: datetime | None
    cause: str | None
    condemned: bool = False


@dataclass(frozen=True)
class Heartbeat:
    """What a heartbeat brings back. `ended`: somebody declared this worker dead (it must claim nothing more).

    `admission` is '' for an unknown pool. `generation` is the slots' present one, `timeline` the server's.
    """

    cordon: CordonView | None
    admission: str
    now: datetime
    ended: bool
    generation: int


_MAKE_CORDON = sql("INSERT INTO {s}.cordon (pod_uid) VALUES (:pod_uid) ON CONFLICT (pod_uid) DO NOTHING")
_MAKE_POOL = sql(
    """
    INSERT INTO {s}.pool (uid, name, namespace, queues, concurrency)
    VALUES (:uid, :name, :namespace, :queues, :concurrency) ON CONFLICT (uid) DO NOTHING
    """,
    queues=TEXTS,
)
_MAKE_QUEUES = sql(
    "INSERT INTO {s}.queue (name) SELECT q FROM unnest(:queues) q ORDER BY q ON CONFLICT (name) DO NOTHING",
    queues=TEXTS,
)
_DECLARE = sql("""
    INSERT INTO {s}.task_type (name, declaration) VALUES (:name, CAST(:declaration AS jsonb))
    ON CONFLICT (name) DO UPDATE SET declaration = excluded.declaration, updated_at = clock_timestamp()
    WHERE task_type.declaration IS DISTINCT FROM excluded.declaration
""")
_MAKE_WORKER = sql(
    """
    INSERT INTO {s}.worker
        (id, pool_uid, pod_uid, pod_name, node, revision, task_types, queues, concurrency)
    VALUES (:id, :pool_uid, :pod_uid, :pod_name, :node, :revision, :task_types, :queues, :concurrency)
    ON CONFLICT (id) DO NOTHING
    """,
    task_types=TEXTS,
    queues=TEXTS,
)
_MAKE_HEARTBEAT = sql("INSERT INTO {s}.worker_heartbeat (worker_id) VALUES (:id) ON CONFLICT (worker_id) DO NOTHING")
_NOTIFY = sql("SELECT pg_notify(:channel, :payload)")
_HEARTBEAT = sql("""
    WITH beat AS (
        UPDATE {s}.worker_heartbeat SET seen_at = clock_timestamp(), running = :running WHERE worker_id = :worker_id
    )
    SELECT clock_timestamp() AS now, coalesce(p.admission, '') AS admission, w.ended_at IS NOT NULL AS ended,
           (SELECT generation FROM {s}.slot_generation) AS generation,
           c.pod_uid, c.sequence, c.origin, c.cause, c.since, c.deadline, c.condemned_at IS NOT NULL AS condemned
    FROM (VALUES (CAST(:worker_id AS text))) AS me (id)
    LEFT JOIN {s}.worker w ON w.id = me.id
    LEFT JOIN {s}.pool p ON p.uid = w.pool_uid
    LEFT JOIN {s}.cordon c ON c.pod_uid = w.pod_uid
""")
_END_WORKER = sql("""
    UPDATE {s}.worker SET ended_at = clock_timestamp(), end_reason = :reason
    WHERE id = :worker_id AND ended_at IS NULL
    RETURNING pool_uid
""")
_PREDECESSORS = sql("""
    SELECT id FROM {s}.worker WHERE pod_uid = :pod_uid AND ended_at IS NULL AND id <> :worker_id ORDER BY registered_at
""")
_REFRESH_POOL = sql(
    """
    INSERT INTO {s}.pool (uid, name, namespace, admission, queues, replicas, concurrency)
    VALUES (:uid, :name, :namespace, :admission, :queues, :replicas, :concurrency)
    ON CONFLICT (uid) DO UPDATE SET
        name = excluded.name, namespace = excluded.namespace, admission = excluded.admission,
        queues = excluded.queues, replicas = excluded.replicas, concurrency = excluded.concurrency,
        refreshed_at = clock_timestamp()
    """,
    queues=TEXTS,
)


async def register(
    store: Store, identity: Identity, declarations: Mapping[str, Mapping[str, Any]] | None = None
) -> Registered:
    """Write the worker and its heartbeat, and what its pod, pool, queues and task types lack of rows.

    `declarations`: per task type, what sweeps need to know; the latest registration stands. May be repeated.
    """
    me = identity
    async with store.transaction() as connection:
        await connection.execute(_MAKE_CORDON, {"pod_uid": me.pod_uid})
        view = cordon_view((await connection.execute(LOCK_CORDON, {"pod_uid": me.pod_uid})).one())
        await connection.execute(
            _MAKE_POOL,
            {
                "uid": me.pool_uid,
                "name": me.pool_name,
                "namespace": me.namespace,
                "queues": list(me.queues),
                "concurrency": me.concurrency,
            },
        )
        await connection.execute(_MAKE_QUEUES, {"queues": list(me.queues)})
        for name, declaration in sorted((declarations or {}).items()):
            await connection.execute(_DECLARE, {"name": name, "declaration": as_json(declaration)})
        await connection.execute(
            _MAKE_WORKER,
            {
                "id": me.worker_id,
                "pool_uid": me.pool_uid,
                "pod_uid": me.pod_uid,
                "pod_name": me.pod_name,
                "node": me.node,
                "revision": me.revision,
                "task_types": list(me.task_types),
                "queues": list(me.queues),
                "concurrency": me.concurrency,
            },
        )
        await connection.execute(_MAKE_HEARTBEAT, {"id": me.worker_id})
        await connection.execute(_NOTIFY, {"channel": POOL_CHANNEL, "payload": me.pool_uid})
    return Registered(view.cordoned, view.deadline, view.cause, view.condemned)


async def predecessors(store: Store, pod_uid: str, *, worker_id: str) -> Sequence[str]:
    """Workers of the pod that never ended, other than `worker_id`, oldest first.

    Whoever holds the pod's file lock is a witness of their death (rule 9): see `recovery.witness`.
    """
    async with store.transaction() as connection:
        values = {"pod_uid": pod_uid, "worker_id": worker_id}
        return list((await connection.execute(_PREDECESSORS, values)).scalars())


async def heartbeat(store: Store, worker_id: str, running: int) -> Heartbeat:
    """Say that the worker lives and runs that many tasks; learn of cordon and admission. One statement."""
    async with store.transaction() as connection:
        row = (await connection.execute(_HEARTBEAT, {"worker_id": worker_id, "running": running})).one()
    view = cordon_view(row) if row.pod_uid is not None else None
    return Heartbeat(view, row.admission, row.now, bool(row.ended), row.generation)


async def end_worker(store: Store, worker_id: str, reason: str) -> bool:
    """Write the worker's end once: drained | deadline | stubborn | witnessed | vanished. False: it had ended."""
    async with store.transaction() as connection:
        pool_uid = (
            await connection.execute(_END_WORKER, {"worker_id": worker_id, "reason": reason})
        ).scalar_one_or_none()
        if pool_uid is not None:
            await connection.execute(_NOTIFY, {"channel": POOL_CHANNEL, "payload": pool_uid})
    return pool_uid is not None


async def refresh_pool(
    store: Store,
    uid: str,
    *,
    name: str,
    namespace: str,
    admission: str,
    queues: Iterable[str],
    replicas: int,
    concurrency: int,
) -> None:
    """The operator's view of the pool, once a round. Admission: Open | Hold | HoldAndDrain | Closed."""
    values = {
        "uid": uid,
        "name": name,
        "namespace": namespace,
        "admission": admission,
        "queues": sorted(queues),
        "replicas": replicas,
        "concurrency": concurrency,
    }
    async with store.transaction() as connection:
        await connection.execute(_REFRESH_POOL, values)
        await connection.execute(_MAKE_QUEUES, {"queues": values["queues"]})
