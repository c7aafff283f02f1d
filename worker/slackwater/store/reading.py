"""What users and admins may see. Rule: reading locks nothing, and another user's task looks like none at all.

`result` is told only of a task that is done and `error` only of one that failed or was cancelled. Tokens are shown to
nobody, workers to admins alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from slackwater.admission import average_seconds
from slackwater.schema import ENDED
from slackwater.store import Store
from slackwater.store.sql import sql

PAGE: Final = 50
PAGE_MAX: Final = 200
EVENTS_PAGE: Final = 500
EVENTS_BYTES: Final = 512 * 1024
"""What one look brings at most, and one event more: many streams at once must not fill a gateway's memory."""
_AVERAGE_LOOKS_AT: Final = 1000
"""Newest tasks among which the latest completed ones are looked for: a bound on the query, whatever the table holds."""


@dataclass(frozen=True, slots=True)
class TaskSummary:
    id: UUID
    type: str
    queue: str
    channel: str
    state: str
    priority: int
    progress: float | None
    attempts: int
    created_at: datetime
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskView(TaskSummary):
    payload: Any
    result: Any
    error: Any
    trace_id: str
    epoch: int
    user_id: str
    worker_id: str | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: str
    data: Any
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a cursor and the state at that moment: an ended task's last page holds its last event."""

    state: str
    events: tuple[Event, ...]
    cursor_known: bool
    """The event at the cursor is there. Looked up only when nothing comes after it any more."""
    more: bool = False
    """There may be others already: look again at once."""

    @property
    def last(self) -> bool:
        return self.state in ENDED and not self.more

    def whole(self, after: int) -> bool:
        """Nothing after the cursor has been removed by retention."""
        return self.events[0].seq == after + 1 if self.events else self.cursor_known or not self.last


@dataclass(frozen=True, slots=True)
class QueueStats:
    """`served`: some pool names the queue. Figures of waiting tasks leave scheduled ones apart."""

    name: str
    served: bool
    paused: bool
    due: int
    scheduled: int
    running: int
    oldest_due_seconds: float | None
    served_since: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """Where a waiting task stands in the fair order; an estimate, since later arrivals may still come before it."""

    ahead: int
    running: int


_SUMMARY = {
    "summary": """t.id, t.type, t.queue, t.channel, c.state, t.priority, t.progress, t.attempts, t.created_at,
    CASE WHEN c.state = 'queued' AND c.claimable_from > clock_timestamp() THEN c.claimable_from END AS run_at,
    t.started_at, t.finished_at"""
}

_VIEW = sql(
    """
    SELECT {summary}, t.payload, t.trace_id, c.epoch, t.user_id, c.worker_id, c.lease_until,
           CASE WHEN c.state = 'done' THEN t.result END AS result,
           CASE WHEN c.state IN ('failed', 'cancelled') THEN t.error_info END AS error
      FROM {s}.task AS t JOIN {s}.claim AS c ON c.task_id = t.id
     WHERE t.id = :task_id AND (CAST(:user_id AS text) IS NULL OR t.user_id = :user_id)
    """,
    _SUMMARY,
)

_LIST = """
    SELECT {summary} FROM {s}.task AS t JOIN {s}.claim AS c ON c.task_id = t.id
     WHERE {conditions} ORDER BY t.id DESC LIMIT :limit
"""

_STATE = sql(
    """
    SELECT c.state FROM {s}.claim AS c
     WHERE c.task_id = :task_id AND (CAST(:user_id AS text) IS NULL OR c.user_id = :user_id)
    """
)

_EVENTS = sql(
    """
    SELECT seq, kind, data, created_at, found
      FROM (SELECT e.*, count(*) OVER () AS found,
                   sum(octet_length(CAST(data AS text))) OVER (ORDER BY seq)
                     - octet_length(CAST(data AS text)) AS before
              FROM (SELECT seq, kind, data, created_at FROM {s}.event
                     WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit) AS e) AS page
     WHERE before < :bytes ORDER BY seq
    """
)

_AT_CURSOR = sql("SELECT true FROM {s}.event WHERE task_id = :task_id AND seq = :after")

_QUEUES = sql(
    """
    SELECT q.name, q.paused, q.served_since,
           EXISTS (SELECT FROM {s}.pool AS p WHERE q.name = ANY(p.queues)) AS served,
           coalesce(w.due, 0) AS due, coalesce(w.scheduled, 0) AS scheduled, coalesce(r.running, 0) AS running,
           extract(epoch FROM clock_timestamp() - w.oldest) AS oldest_due_seconds
      FROM {s}.queue AS q
      LEFT JOIN (SELECT queue, count(*) FILTER (WHERE claimable_from <= clock_timestamp()) AS due,
                        count(*) FILTER (WHERE claimable_from > clock_timestamp()) AS scheduled,
                        min(claimable_from) FILTER (WHERE claimable_from <= clock_timestamp()) AS oldest
                   FROM {s}.claim WHERE state = 'queued' GROUP BY queue) AS w ON w.queue = q.name
      LEFT JOIN (SELECT queue, count(*) AS running
                   FROM {s}.claim WHERE state = 'running' GROUP BY queue) AS r ON r.queue = q.name
     ORDER BY q.name
    """
)

_PLACE = sql(
    """
    SELECT (SELECT count(*) FROM {s}.claim AS o
             WHERE o.state = 'queued' AND o.queue = c.queue AND o.claimable_from <= clock_timestamp()
               AND (o.order_key, o.task_id) < (c.order_key, c.task_id)) AS ahead,
           (SELECT count(*) FROM {s}.claim AS o WHERE o.state = 'running' AND o.queue = c.queue) AS running
      FROM {s}.claim AS c WHERE c.task_id = :task_id AND c.state = 'queued'
    """
)

_RUNNING = sql(
    """
    SELECT count(*) FROM {s}.claim
     WHERE state = 'running' AND (CAST(:user_id AS text) IS NULL OR user_id = :user_id)
    """
)

_RUNS = sql(
    """
    SELECT t.started_at, t.finished_at
      FROM (SELECT id FROM {s}.task ORDER BY id DESC LIMIT :looked_at) AS newest
      JOIN {s}.task AS t ON t.id = newest.id
      JOIN {s}.claim AS c ON c.task_id = t.id
     WHERE c.state = 'done' AND t.finished_at > t.started_at ORDER BY t.finished_at DESC LIMIT 20
    """
)


async def task_view(store: Store, task_id: UUID, user_id: str | None = None) -> TaskView | None:
    """One task. `user_id` None: whosever it is, for admins."""
    async with store.transaction() as connection:
        row = (await connection.execute(_VIEW, {"task_id": task_id, "user_id": user_id})).one_or_none()
    return None if row is None else TaskView(**row._mapping)


async def list_tasks(
    store: Store,
    user_id: str | None = None,
    *,
    states: Sequence[str] = (),
    queue: str | None = None,
    limit: int = PAGE,
    before: UUID | None = None,
) -> list[TaskSummary]:
    """The newest first. The next page's `before` is the last id of this one, so that new tasks shift nothing."""
    conditions, values = ["true"], {"limit": min(limit, PAGE_MAX)}
    given: dict[str, tuple[object, str]] = {
        "user_id": (user_id, "t.user_id = :user_id"),
        "queue": (queue, "t.queue = :queue"),
        "before": (before, "t.id < :before"),
        "states": (list(states) or None, "c.state = ANY(CAST(:states AS text[]))"),
    }
    for name, (value, condition) in given.items():
        if value is not None:
            conditions.append(condition)
            values[name] = value  # type: ignore[assignment]
    statement = sql(_LIST, {**_SUMMARY, "conditions": " AND ".join(conditions)})
    async with store.transaction() as connection:
        rows = await connection.execute(statement, values)
        return [TaskSummary(**row._mapping) for row in rows]


async def events_after(store: Store, task_id: UUID, user_id: str | None, after: int) -> EventPage | None:
    """Events with a number above `after`; None if the user has no such task. The state is read first: if it is an end,
    the last event is already there.
    """
    async with store.transaction() as connection:
        state = (await connection.execute(_STATE, {"task_id": task_id, "user_id": user_id})).scalar_one_or_none()
        if state is None:
            return None
        values = {"task_id": task_id, "after": after, "limit": EVENTS_PAGE, "bytes": EVENTS_BYTES}
        rows = (await connection.execute(_EVENTS, values)).all()
        events = tuple(Event(row.seq, row.kind, row.data, row.created_at) for row in rows)
        more = bool(rows) and (rows[0].found == EVENTS_PAGE or len(rows) < rows[0].found)
        known = bool(events) or state not in ENDED
        if not known:
            at_cursor = await connection.execute(_AT_CURSOR, {"task_id": task_id, "after": after})
            known = at_cursor.one_or_none() is not None
        return EventPage(state, events, known, more)


async def queue_stats(store: Store) -> list[QueueStats]:
    async with store.transaction() as connection:
        rows = (await connection.execute(_QUEUES)).mappings().all()
    return [
        QueueStats(
            name=row["name"],
            served=row["served"],
            paused=row["paused"],
            due=row["due"],
            scheduled=row["scheduled"],
            running=row["running"],
            oldest_due_seconds=None if row["oldest_due_seconds"] is None else float(row["oldest_due_seconds"]),
            served_since=row["served_since"],
        )
        for row in rows
    ]


async def place_of(store: Store, task_id: UUID) -> Place | None:
    """None: it does not wait."""
    async with store.transaction() as connection:
        row = (await connection.execute(_PLACE, {"task_id": task_id})).one_or_none()
    return None if row is None else Place(row.ahead, row.running)


async def count_running(store: Store, user_id: str | None = None) -> int:
    """Running tasks of a user, or of all."""
    async with store.transaction() as connection:
        return int((await connection.execute(_RUNNING, {"user_id": user_id})).scalar_one())


async def average_duration(store: Store) -> float:
    """Seconds that the latest 20 successful tasks took on average; 120 without any."""
    async with store.transaction() as connection:
        rows = await connection.execute(_RUNS, {"looked_at": _AVERAGE_LOOKS_AT})
        return average_seconds((row.started_at, row.finished_at) for row in rows)
