"""How a claim is made. Rule: one statement claims one task, and restates everything it was decided on (rule 1).

The order within the transaction is the proof. (1) Share-lock the slot generation (an advisory lock) in a statement
*before* the one that reads it: a statement's snapshot predates its lock waits, and a raise waits for claims in flight.
(2) One statement share-locks the pod's open cordon row, so that after a cordon commits the pod's claims can only fall;
then takes the candidate's row if it is still queued, at the epoch as read, claimable, of an open queue and pool, of
the present generation, on the timeline that has lasted for one lease, and at most 30 s after the candidate was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from slackwater.claim import Candidate, Claim, ClaimedTask
from slackwater.schema import GENERATION_LOCK
from slackwater.store import TIMELINE, Store, events
from slackwater.store.sql import INSTANT, TEXTS, sql

_CANDIDATES = sql(
    """
    SELECT k.task_id, k.epoch, k.type, k.queue, k.user_id, k.channel, statement_timestamp() AS read_at
    FROM {s}.queue q
    CROSS JOIN LATERAL (
        SELECT * FROM {s}.claim k
        WHERE k.queue = q.name AND k.state = 'queued' AND k.claimable_from <= statement_timestamp()
          AND k.type = ANY(:types) AND k.channel <> ALL(:skip_channels)
        ORDER BY k.order_key, k.task_id LIMIT :limit) k
    WHERE q.name = ANY(:queues) AND NOT q.paused
    ORDER BY k.order_key, k.task_id LIMIT :limit
    """,
    queues=TEXTS,
    types=TEXTS,
    skip_channels=TEXTS,
)
_SHARE_GENERATION = f"SELECT pg_advisory_xact_lock_shared({GENERATION_LOCK})"
_CLAIM = sql(
    """
    WITH pod AS MATERIALIZED (
        SELECT w.pool_uid FROM {s}.worker w JOIN {s}.cordon c ON c.pod_uid = w.pod_uid
        WHERE w.id = :worker_id AND w.ended_at IS NULL AND c.since IS NULL
        FOR SHARE OF c
    ), open AS MATERIALIZED (
        -- The clock is read after the wait for the pod's row.
        SELECT clock_timestamp() AS now FROM pod
        JOIN {s}.pool p ON p.uid = pod.pool_uid AND p.admission = 'Open'
        JOIN {s}.slot_generation g ON g.generation = :generation
        JOIN {s}.timeline t ON t.name = {timeline}
          AND t.changed_at <= clock_timestamp() - make_interval(secs => :failover_pause)
    ), target AS MATERIALIZED (
        SELECT k.task_id FROM open, {s}.claim k JOIN {s}.queue q ON q.name = k.queue AND NOT q.paused
        WHERE k.task_id = :task_id AND k.state = 'queued' AND k.epoch = :epoch AND k.claimable_from <= open.now
          AND open.now BETWEEN :read_at AND :read_at + make_interval(secs => :candidate_age)
        FOR UPDATE OF k SKIP LOCKED
    )
    UPDATE {s}.claim k
    SET state = 'running', epoch = k.epoch + 1, token = :token, worker_id = :worker_id, old_token = NULL,
        claimed_at = clock_timestamp(), active_at = clock_timestamp(),
        lease_until = clock_timestamp() + make_interval(secs => :lease)
    FROM target WHERE k.task_id = target.task_id
    RETURNING k.epoch
    """,
    {"timeline": TIMELINE},
    read_at=INSTANT,
)
_RUNNING = """
    SELECT k.task_id, k.epoch, k.token, k.worker_id, k.type, k.queue, k.user_id, k.channel, k.lease_until,
           t.payload, t.checkpoint, t.attempts, t.interruptions, t.trace_id, t.settlement
    FROM {s}.claim k JOIN {s}.task t ON t.id = k.task_id
    WHERE k.task_id = :task_id AND k.state = 'running' AND k.token = :token
"""
# In a statement after the claim's, so that the event's number is the next one.
_START = sql(
    """
    WITH begun AS (
        UPDATE {s}.task SET started_at = clock_timestamp() WHERE id = :task_id AND started_at IS NULL
    ), stored AS (
        -- Notifies nobody: that takes a lock of the whole cluster at commit, and streams look by themselves.
        INSERT INTO {s}.event (task_id, seq, epoch, counter, kind)
        SELECT :task_id, coalesce(max(seq), 0) + 1, :epoch, :counter, 'started'
        FROM {s}.event WHERE task_id = :task_id
    )
    {read}
""",
    {"read": _RUNNING},
)
_READ = sql(_RUNNING)
_TOO_LATE = sql(
    "SELECT clock_timestamp() NOT BETWEEN :read_at AND :read_at + make_interval(secs => :window)", read_at=INSTANT
)
_LOCK = sql("SELECT FROM {s}.claim WHERE task_id = :task_id FOR SHARE")


@dataclass(frozen=True)
class Found:
    """What a look for a claim without an answer brought.

    `task`: the claim stands: run it, or hand it back as not started. `over`: no claim can come any more; without a
    task the token goes back. Neither: look again.
    """

    task: ClaimedTask | None
    over: bool


async def candidates(
    store: Store, *, queues: Iterable[str], types: Iterable[str], limit: int, skip_channels: Iterable[str] = ()
) -> list[Candidate]:
    """Queued tasks in fair order, at most `limit`; takes nothing. Paused queues are left out."""
    values = {
        "queues": list(queues),
        "types": list(types),
        "skip_channels": list(skip_channels),
        "limit": limit,
    }
    async with store.transaction() as connection:
        return [Candidate(*row) for row in await connection.execute(_CANDIDATES, values)]


async def claim(
    store: Store, candidate: Candidate, *, worker_id: str, token: UUID, generation: int
) -> ClaimedTask | None:
    """Claim that one task under the slot generation that `token`'s slots were taken under.

    None: the statement ran and hit no row, so the token goes back. StoreUnavailable: no answer, the claim may stand;
    keep the slot and ask `find_token`. The lease runs from the statement, by the database's clock.
    """
    c = store.constants
    values = {
        "task_id": candidate.task_id,
        "epoch": candidate.epoch,
        "read_at": candidate.read_at,
        "worker_id": worker_id,
        "token": token,
        "generation": generation,
        "lease": c.lease_seconds,
        "candidate_age": c.candidate_age_seconds,
        "failover_pause": c.failover_pause_seconds,
    }
    async with store.transaction(_SHARE_GENERATION, seconds=c.claim_timeout_seconds) as connection:
        taken = (await connection.execute(_CLAIM, values)).one_or_none()
        if taken is None:
            return None
        started = values | {"epoch": taken.epoch, "counter": events.STARTED}
        return _claimed((await connection.execute(_START, started)).one())


async def find_token(store: Store, candidate: Candidate, token: UUID) -> Found:
    """Look for a claim that gave no answer, until `Found.task` or `Found.over`.

    Waits for a claim in flight, by its row's lock. Over: past the 30 s of rule 1 and the time that a statement begun
    within them may last. Raises StoreUnavailable: no answer yet, look again.
    """
    c = store.constants
    values = {
        "task_id": candidate.task_id,
        "token": token,
        "read_at": candidate.read_at,
        "window": c.candidate_age_seconds + c.statement_timeout_seconds,
    }
    async with store.transaction() as connection:
        over = bool((await connection.execute(_TOO_LATE, values)).scalar_one())
        await connection.execute(_LOCK, values)
        row = (await connection.execute(_READ, values)).one_or_none()
    return Found(_claimed(row) if row is not None else None, over)


def _claimed(row: Row[Any]) -> ClaimedTask:
    return ClaimedTask(
        claim=Claim(row.task_id, row.epoch, row.token, row.worker_id),
        type=row.type,
        queue=row.queue,
        user_id=row.user_id,
        channel=row.channel,
        payload=row.payload,
        checkpoint=row.checkpoint,
        attempts=row.attempts,
        interruptions=row.interruptions,
        trace_id=row.trace_id,
        lease_until=row.lease_until,
        settlement=row.settlement,
    )
