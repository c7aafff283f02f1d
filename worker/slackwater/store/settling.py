"""How a claim's end is written. Rule: state, money, error and event in one transaction, once per settlement (rule 12).

`settle` is the one door through which a task leaves `running`, or ends from elsewhere; its caller holds the claim's row
by its fence or premise. An end with an open submission (an intent without an outcome on record) goes to `unknown`:
nothing is refunded while a provider may still charge.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.claim import CancelCharge, TaskState
from slackwater.limits import clean_error_text
from slackwater.schema import POOL_CHANNEL, WAKE_CHANNEL
from slackwater.store.sql import INSTANT, as_json, sql

_FACTS = sql("""
    SELECT t.settlement, t.attempts, t.interruptions,
           -- Under this settlement: what was resolved before its reserve was paid, or not, by an earlier one.
           EXISTS (SELECT FROM {s}.submission u JOIN {s}.settlement m ON m.task_id = t.id AND m.n = t.settlement
                   WHERE u.task_id = t.id AND coalesce(u.resolved_at, 'infinity') >= m.reserved_at) AS submitted,
           EXISTS (SELECT FROM {s}.submission u WHERE u.task_id = t.id AND u.outcome IS NULL) AS open
    FROM {s}.task t WHERE t.id = :task_id FOR NO KEY UPDATE OF t
""")
_SETTLE = sql("""
    WITH k AS (
        UPDATE {s}.claim SET
            state = :state, token = NULL, lease_until = NULL,
            old_token = CASE WHEN :fenced AND lease_until > clock_timestamp() THEN token ELSE old_token END,
            claimable_from = CASE
                WHEN :fenced AND lease_until > clock_timestamp() THEN lease_until
                ELSE greatest(CASE WHEN state = 'running' THEN '-infinity' ELSE claimable_from END,
                              clock_timestamp() + make_interval(secs => :delay)) END
        WHERE task_id = :task_id AND epoch = :epoch
        RETURNING claimable_from
    ), t AS (
        UPDATE {s}.task SET
            attempts = attempts + :attempts,
            interruptions = CASE WHEN :interruptions < 0 THEN 0 ELSE interruptions + :interruptions END,
            checkpoint = CASE WHEN :keep_checkpoint THEN checkpoint ELSE CAST(:checkpoint AS jsonb) END,
            result = CASE WHEN :state = 'done' THEN CAST(:result AS jsonb) ELSE result END,
            error_info = CASE WHEN :state = 'done' THEN NULL WHEN CAST(:error AS jsonb) IS NULL THEN error_info
                         ELSE CAST(:error AS jsonb) END,
            pending_since = CASE WHEN :state = 'queued' THEN clock_timestamp() ELSE pending_since END,
            finished_at = CASE WHEN :ended THEN clock_timestamp() END
        FROM k WHERE id = :task_id
    ), money AS (
        UPDATE {s}.settlement SET
            charged = CASE WHEN :charge THEN reserved END, refunded = CASE WHEN NOT :charge THEN reserved END,
            settled_at = clock_timestamp()
        FROM k WHERE :ended AND task_id = :task_id AND n = :n AND charged IS NULL AND refunded IS NULL
    )
    SELECT claimable_from FROM k
""")
_CANCEL_CHARGE = sql("""
    SELECT y.declaration->>'charge_on_cancel' FROM {s}.task t JOIN {s}.task_type y ON y.name = t.type
    WHERE t.id = :task_id
""")
# Only of types that declare a hook. While the execution may still ask the provider, which shows by an intent without
# a reference, nothing is stopped or undone.
_AFTERCARE = sql(
    """
    INSERT INTO {s}.aftercare (task_id, n, kind, type, next_try_at)
    SELECT t.id, :n, v.kind, t.type,
           CASE WHEN v.kind = 'stop' AND NOT EXISTS (
                    SELECT FROM {s}.submission u WHERE u.task_id = t.id AND u.outcome IS NULL AND u.reference IS NULL)
                THEN clock_timestamp() ELSE greatest(clock_timestamp(), :later) END
    FROM {s}.task t JOIN {s}.task_type y ON y.name = t.type CROSS JOIN (VALUES ('stop'), ('compensate')) v (kind)
    WHERE t.id = :task_id AND CASE v.kind
        WHEN 'stop' THEN :on_request AND coalesce(CAST(y.declaration->>'on_cancel' AS boolean), false)
        ELSE :ended AND :epoch > 0 AND coalesce(CAST(y.declaration->>'compensate' AS boolean), false) END
    ON CONFLICT DO NOTHING
    """,
    later=INSTANT,
)
_TELL = sql("""
    SELECT CASE WHEN CAST(:queue AS text) IS NOT NULL THEN pg_notify(:wake, :queue) END,
           (SELECT pg_notify(:pool, w.pool_uid) FROM {s}.worker w JOIN {s}.cordon c ON c.pod_uid = w.pod_uid
            WHERE w.id = :worker_id AND c.since IS NOT NULL)
""")


@dataclass(frozen=True)
class Facts:
    """What the task's row and its submissions say, read after the claim's row was locked."""

    settlement: int
    attempts: int
    interruptions: int
    submitted: bool
    open: bool


@dataclass(frozen=True)
class Verdict:
    """What becomes of a task. `fenced`: the execution may act until its lease's end, so keep its token till then."""

    state: TaskState
    error_type: str | None = None
    message: str = ""
    result: Any = None
    checkpoint: Any = None
    attempts: int = 0
    interruptions: int = 0
    """To add; -1: back to 0, since the run got somewhere."""
    delay_seconds: float = 0.0
    fenced: bool = False
    on_request: bool = False
    """Cancelled: a provider that is still at work is to be asked to stop."""

    @property
    def ended(self) -> bool:
        return self.state in (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)

    @property
    def error(self) -> dict[str, str] | None:
        if self.error_type is None:
            return None
        return {"error_type": clean_error_text(self.error_type, 200), "message": clean_error_text(self.message)}


async def facts(connection: AsyncConnection, task_id: UUID) -> Facts:
    """Lock the task's row (after the claim's) and read what a verdict needs, in a statement of its own."""
    row = (await connection.execute(_FACTS, {"task_id": task_id})).one()
    return Facts(row.settlement, row.attempts, row.interruptions, row.submitted, row.open)


async def settle(connection: AsyncConnection, task_id: UUID, epoch: int, verdict: Verdict, known: Facts) -> datetime:
    """Write the verdict on claim and task, and move the money if it is an end; returns claimable_from.

    Done is charged; failed is refunded; cancelled is charged as its type declares, by default if anything was
    submitted. What is to be done after the end is noted with it (`aftercare`). The caller adds the event and tells
    queue and pool (`tell`).
    """
    charge = verdict.state is TaskState.DONE
    if verdict.state is TaskState.CANCELLED:
        charge = await _charged(connection, task_id, begun=epoch > 0, submitted=known.submitted)
    values = {
        "task_id": task_id,
        "epoch": epoch,
        "n": known.settlement,
        "state": verdict.state.value,
        "ended": verdict.ended,
        "charge": charge,
        "fenced": verdict.fenced,
        "delay": verdict.delay_seconds,
        "attempts": verdict.attempts,
        "interruptions": verdict.interruptions,
        "keep_checkpoint": verdict.checkpoint is None,
        "checkpoint": as_json(verdict.checkpoint),
        "result": as_json(verdict.result),
        "error": None if verdict.error is None else as_json(verdict.error),
    }
    claimable_from: datetime = (await connection.execute(_SETTLE, values)).scalar_one()
    if verdict.state in (TaskState.FAILED, TaskState.CANCELLED) or verdict.on_request:
        values |= {"on_request": verdict.on_request and known.open, "later": claimable_from}
        await connection.execute(_AFTERCARE, values)
    return claimable_from


async def _charged(connection: AsyncConnection, task_id: UUID, *, begun: bool, submitted: bool) -> bool:
    declared = (await connection.execute(_CANCEL_CHARGE, {"task_id": task_id})).scalar_one_or_none()
    match CancelCharge(declared or CancelCharge.SUBMITTED):
        case CancelCharge.SUBMITTED:
            return submitted
        case CancelCharge.NOTHING:
            return False
        case CancelCharge.ALL:
            return begun


async def tell(connection: AsyncConnection, *, queue: str | None, worker_id: str | None) -> None:
    """Wake a worker for `queue`; wake the operator if the worker's pod is cordoned, which is when it waits for ends.

    Not at every end: notifying takes a lock of the whole database cluster at commit.
    """
    if queue is not None or worker_id is not None:
        values = {"wake": WAKE_CHANNEL, "queue": queue, "pool": POOL_CHANNEL, "worker_id": worker_id}
        await connection.execute(_TELL, values)
