"""What is left to do for a task that ended. Rule: written in the transaction of the end, done at least once, given up
after a number of tries and never forgotten.

`stop`: a cancelled task's provider is still at work; once every submission has an outcome on record, an `unknown` task
becomes cancelled and its money moves. `compensate`: a task that had begun ended without a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.claim import TaskState
from slackwater.limits import clean_error_text
from slackwater.store import Store, events
from slackwater.store.settling import Verdict, facts, settle
from slackwater.store.sql import TEXTS, sql


class Care(StrEnum):
    STOP = "stop"
    COMPENSATE = "compensate"


_TAKE = sql(
    """
    WITH due AS MATERIALIZED (
        SELECT task_id, n, kind FROM {s}.aftercare
        WHERE done_at IS NULL AND dead_at IS NULL AND next_try_at <= clock_timestamp()
          AND (kind = 'stop' AND type = ANY(:stops) OR kind = 'compensate' AND type = ANY(:compensates))
        ORDER BY next_try_at LIMIT :limit FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {s}.aftercare a SET tries = a.tries + 1, next_try_at = clock_timestamp() + make_interval(secs => :hold)
        FROM due WHERE a.task_id = due.task_id AND a.n = due.n AND a.kind = due.kind
        RETURNING a.task_id, a.n, a.kind, a.tries
    )
    SELECT taken.task_id, taken.n, taken.kind, taken.tries, t.type, t.user_id, t.payload, t.trace_id, k.state,
           t.error_info->>'error_type' AS error_type
    FROM taken JOIN {s}.task t ON t.id = taken.task_id JOIN {s}.claim k ON k.task_id = t.id
    """,
    stops=TEXTS,
    compensates=TEXTS,
)
_DONE = sql("""
    UPDATE {s}.aftercare SET done_at = clock_timestamp(), last_error = NULL
    WHERE task_id = :task_id AND n = :n AND kind = :kind AND done_at IS NULL
""")
_FAILED = sql("""
    UPDATE {s}.aftercare SET last_error = :error,
        next_try_at = CASE WHEN :dead THEN next_try_at ELSE clock_timestamp() + make_interval(secs => :wait) END,
        dead_at = CASE WHEN :dead THEN clock_timestamp() END
    WHERE task_id = :task_id AND n = :n AND kind = :kind AND done_at IS NULL AND tries = :tries
""")
_LOCK = sql("SELECT state, epoch FROM {s}.claim WHERE task_id = :task_id FOR UPDATE")
_LIST = sql("""
    SELECT task_id, n, kind, type, tries, next_try_at, done_at, dead_at, last_error,
           CASE WHEN done_at IS NOT NULL THEN 'done' WHEN dead_at IS NOT NULL THEN 'dead' ELSE 'open' END AS state
    FROM {s}.aftercare WHERE CASE WHEN CAST(:task_id AS uuid) IS NULL THEN done_at IS NULL ELSE task_id = :task_id END
    ORDER BY next_try_at LIMIT :limit
""")
_AGAIN = sql("""
    UPDATE {s}.aftercare SET done_at = NULL, dead_at = NULL, tries = 0, next_try_at = clock_timestamp()
    WHERE task_id = :task_id AND done_at IS NULL RETURNING kind
""")
_COUNTS = sql("""
    SELECT count(*) FILTER (WHERE dead_at IS NULL) AS open, count(*) FILTER (WHERE dead_at IS NOT NULL) AS dead
    FROM {s}.aftercare WHERE done_at IS NULL
""")


@dataclass(frozen=True, slots=True)
class Errand:
    """One piece of aftercare that is to be done now, and the task as it stands."""

    task_id: UUID
    n: int
    kind: Care
    tries: int
    type: str
    user_id: str
    payload: Any
    trace_id: str
    state: str
    error_type: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    task_id: UUID
    n: int
    kind: str
    type: str
    tries: int
    next_try_at: datetime
    done_at: datetime | None
    dead_at: datetime | None
    last_error: str | None
    state: str


async def take(
    store: Store, *, stops: Iterable[str], compensates: Iterable[str], limit: int, hold_seconds: float
) -> list[Errand]:
    """What is due, of types whose hooks the caller has; nobody else gets it within `hold_seconds`."""
    values = {"stops": list(stops), "compensates": list(compensates), "limit": limit, "hold": hold_seconds}
    async with store.transaction() as connection:
        rows = (await connection.execute(_TAKE, values)).mappings().all()
    return [Errand(**{**row, "kind": Care(row["kind"])}) for row in rows]


async def done(store: Store, errand: Errand) -> None:
    """It was done. A stopped task that was unknown is cancelled with it, if every submission is resolved by now."""
    async with store.transaction() as connection:
        row = (await connection.execute(_LOCK, {"task_id": errand.task_id})).one()
        if errand.kind is Care.STOP and row.state == TaskState.UNKNOWN:
            await _cancelled(connection, errand.task_id, row.epoch)
        await connection.execute(_DONE, _named(errand))


async def failed(store: Store, errand: Errand, *, error: str, wait_seconds: float | None) -> None:
    """Try again after `wait_seconds`; None: it is given up, for an administrator."""
    values = {
        "tries": errand.tries,
        "error": clean_error_text(error, 500),
        "dead": wait_seconds is None,
        "wait": wait_seconds or 0.0,
    }
    async with store.transaction() as connection:
        await connection.execute(_FAILED, {**_named(errand), **values})


async def standing(store: Store, task_id: UUID | None = None, *, limit: int = 50) -> list[Standing]:
    """A task's aftercare, or all that is not done yet."""
    async with store.transaction() as connection:
        rows = (await connection.execute(_LIST, {"task_id": task_id, "limit": limit})).mappings()
        return [Standing(**row) for row in rows]


async def again(store: Store, task_id: UUID, *, who: str) -> int:
    """Give what is not done all its tries again, at once; returns how many."""
    from slackwater.store.admin import audit  # it settles, which writes aftercare

    async with store.transaction() as connection:
        count = len((await connection.execute(_AGAIN, {"task_id": task_id})).all())
        if count:
            await audit(connection, who, "aftercare", task_id, {"again": count})
    return count


async def backlog(store: Store) -> tuple[int, int]:
    """How many wait, and how many were given up."""
    async with store.transaction() as connection:
        row = (await connection.execute(_COUNTS)).one()
    return int(row.open), int(row.dead)


async def _cancelled(connection: AsyncConnection, task_id: UUID, epoch: int) -> None:
    known = await facts(connection, task_id)
    if known.open:
        return
    verdict = Verdict(TaskState.CANCELLED, "Cancelled", "cancelled on request; the provider has stopped")
    await settle(connection, task_id, epoch, verdict, known)
    await events.add_foreign(
        connection, task_id, epoch=epoch, kind=TaskState.CANCELLED, data={"error_type": "Cancelled"}
    )


def _named(errand: Errand) -> dict[str, Any]:
    return {"task_id": errand.task_id, "n": errand.n, "kind": errand.kind.value}
