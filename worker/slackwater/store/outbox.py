"""The outbox, from a task's transaction to its deliveries. Rule: at least once, in order per task, and never lost.

A row is written with the event it tells of. `hand_out` makes one delivery of it for each webhook that wants its kind.
`take` takes the first undelivered one of each task for a while, so that several senders share the work and a sender
that died is replaced when that while is over. A delivery that failed often enough is dead: it is kept, holds up its
task's later ones no more, and goes out again only when an administrator says so (`redeliver`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from slackwater.limits import clean_error_text
from slackwater.store import Store
from slackwater.store.admin import audit
from slackwater.store.sql import sql

BATCH: Final = 500

# One at a time, and none passes over a row: a later event of a task must not be there to be sent before an earlier one.
_ALONE: Final = "SELECT pg_advisory_xact_lock(5312199)"
_HAND_OUT = sql("""
    WITH batch AS MATERIALIZED (
        SELECT id, task_id, seq, kind FROM {s}.outbox WHERE delivered_at IS NULL
        ORDER BY id LIMIT :batch FOR UPDATE
    ), made AS (
        INSERT INTO {s}.delivery (webhook, outbox_id, task_id, seq)
        SELECT w.name, b.id, b.task_id, b.seq FROM batch b
        JOIN {s}.webhook w ON w.kinds = '{}' OR b.kind = ANY(w.kinds)
        ON CONFLICT DO NOTHING
    )
    UPDATE {s}.outbox o SET delivered_at = clock_timestamp() FROM batch WHERE o.id = batch.id RETURNING o.id
""")
# Only the first open one of a task: what comes after it waits, whether the first is due or being sent.
_TAKE = sql(
    """
    WITH head AS MATERIALIZED (
        SELECT d.webhook, d.outbox_id FROM {s}.delivery d
        WHERE d.webhook = :webhook AND d.delivered_at IS NULL AND d.dead_at IS NULL
          AND d.next_try_at <= clock_timestamp()
          AND NOT EXISTS (SELECT FROM {s}.delivery e
                          WHERE e.webhook = d.webhook AND e.task_id = d.task_id AND e.seq < d.seq
                            AND e.delivered_at IS NULL AND e.dead_at IS NULL)
        ORDER BY d.next_try_at, d.outbox_id LIMIT :limit FOR UPDATE OF d SKIP LOCKED
    ), taken AS (
        UPDATE {s}.delivery d
        SET tries = d.tries + 1, next_try_at = clock_timestamp() + make_interval(secs => :hold)
        FROM head WHERE d.webhook = head.webhook AND d.outbox_id = head.outbox_id
        RETURNING d.webhook, d.outbox_id, d.tries
    )
    SELECT o.id, taken.webhook, o.task_id, o.seq, o.kind, o.data, o.created_at, taken.tries,
           w.url, w.secrets, w.private, t.type, t.queue, t.user_id
    FROM taken JOIN {s}.outbox o ON o.id = taken.outbox_id JOIN {s}.webhook w ON w.name = taken.webhook
    LEFT JOIN {s}.task t ON t.id = o.task_id
    ORDER BY o.id
    """
)
# `tries` as taken: whoever took it again meanwhile has the word.
_DELIVERED = sql("""
    UPDATE {s}.delivery SET delivered_at = clock_timestamp(), last_error = NULL
    WHERE webhook = :webhook AND outbox_id = :id AND delivered_at IS NULL
""")
_FAILED = sql("""
    UPDATE {s}.delivery SET last_error = :error,
        next_try_at = CASE WHEN :dead THEN next_try_at ELSE clock_timestamp() + make_interval(secs => :wait) END,
        dead_at = CASE WHEN :dead THEN clock_timestamp() END
    WHERE webhook = :webhook AND outbox_id = :id AND delivered_at IS NULL AND tries = :tries
""")
_LIST = sql("""
    SELECT d.outbox_id AS id, d.webhook, d.task_id, d.seq, o.kind, o.created_at, d.tries, d.last_error,
           d.delivered_at, d.dead_at, d.next_try_at,
           CASE WHEN d.delivered_at IS NOT NULL THEN 'delivered' WHEN d.dead_at IS NOT NULL THEN 'dead'
                ELSE 'open' END AS state
    FROM {s}.delivery d JOIN {s}.outbox o ON o.id = d.outbox_id
    WHERE (CAST(:webhook AS text) IS NULL OR d.webhook = :webhook)
      AND (CAST(:task_id AS uuid) IS NULL OR d.task_id = :task_id)
      AND CASE CAST(:state AS text)
          WHEN 'delivered' THEN d.delivered_at IS NOT NULL
          WHEN 'dead' THEN d.delivered_at IS NULL AND d.dead_at IS NOT NULL
          WHEN 'open' THEN d.delivered_at IS NULL AND d.dead_at IS NULL
          ELSE true END
    ORDER BY d.outbox_id DESC, d.webhook LIMIT :limit
""")
_REDELIVER = sql("""
    UPDATE {s}.delivery SET delivered_at = NULL, dead_at = NULL, tries = 0, next_try_at = clock_timestamp()
    WHERE webhook = :webhook AND outbox_id = :id RETURNING task_id, seq
""")
_BACKLOG = sql("""
    SELECT w.name, count(d.outbox_id) FILTER (WHERE d.delivered_at IS NULL AND d.dead_at IS NULL) AS open,
           count(d.outbox_id) FILTER (WHERE d.delivered_at IS NULL AND d.dead_at IS NOT NULL) AS dead
    FROM {s}.webhook w LEFT JOIN {s}.delivery d ON d.webhook = w.name AND d.delivered_at IS NULL
    GROUP BY w.name ORDER BY w.name
""")


@dataclass(frozen=True, slots=True)
class Letter:
    """One delivery that is to be sent now. `type`, `queue`, `user_id`: None once the task itself was pruned."""

    id: int
    webhook: str
    task_id: UUID
    seq: int
    kind: str
    data: Any
    created_at: datetime
    tries: int
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    private: bool
    type: str | None
    queue: str | None
    user_id: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as it stands: open, delivered or dead."""

    id: int
    webhook: str
    task_id: UUID
    seq: int
    kind: str
    created_at: datetime
    tries: int
    last_error: str | None
    delivered_at: datetime | None
    dead_at: datetime | None
    next_try_at: datetime
    state: str


@dataclass(frozen=True, slots=True)
class Backlog:
    webhook: str
    open: int
    dead: int


async def hand_out(store: Store) -> int:
    """Hand up to BATCH new rows to the webhooks there are; returns how many."""
    async with store.transaction(_ALONE) as connection:
        return len((await connection.execute(_HAND_OUT, {"batch": BATCH})).all())


async def take(store: Store, webhook: str, *, limit: int, hold_seconds: float) -> list[Letter]:
    """The due heads of the tasks' queues, oldest first; nobody else gets them within `hold_seconds`."""
    values = {"webhook": webhook, "limit": limit, "hold": hold_seconds}
    async with store.transaction() as connection:
        rows = (await connection.execute(_TAKE, values)).mappings().all()
    return [Letter(**{**row, "secrets": tuple(row["secrets"])}) for row in rows]


async def delivered(store: Store, letter: Letter) -> None:
    """The receiver took it. What it took, it has, whoever else may be sending it again."""
    async with store.transaction() as connection:
        await connection.execute(_DELIVERED, {"webhook": letter.webhook, "id": letter.id})


async def failed(store: Store, letter: Letter, *, error: str, wait_seconds: float | None) -> None:
    """Try again after `wait_seconds`; None: it is dead."""
    values = {
        "webhook": letter.webhook,
        "id": letter.id,
        "tries": letter.tries,
        "error": clean_error_text(error, 500),
        "dead": wait_seconds is None,
        "wait": wait_seconds or 0.0,
    }
    async with store.transaction() as connection:
        await connection.execute(_FAILED, values)


async def deliveries(
    store: Store,
    *,
    webhook: str | None = None,
    task_id: UUID | None = None,
    state: str | None = None,
    limit: int = 50,
) -> list[Delivery]:
    """The newest first."""
    values = {"webhook": webhook, "task_id": task_id, "state": state, "limit": limit}
    async with store.transaction() as connection:
        return [Delivery(**row) for row in (await connection.execute(_LIST, values)).mappings()]


async def redeliver(store: Store, webhook: str, id_: int, *, who: str) -> bool:
    """Send one again, whatever became of it, with all its tries before it. False: no such delivery."""
    async with store.transaction() as connection:
        row = (await connection.execute(_REDELIVER, {"webhook": webhook, "id": id_})).one_or_none()
        if row is None:
            return False
        await audit(connection, who, "redeliver", row.task_id, {"webhook": webhook, "delivery": id_})
    return True


async def backlog(store: Store) -> list[Backlog]:
    """Undelivered ones by webhook, for the metrics."""
    async with store.transaction() as connection:
        return [Backlog(*row) for row in await connection.execute(_BACKLOG)]
