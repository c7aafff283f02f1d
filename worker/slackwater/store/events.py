"""Events and outbox. Rule: a gapless number per task, given under the claim row's lock; stored before anyone is told.

An event carries (epoch, counter), unique, so that a repeat changes nothing: a run's own events count from 1, its own
end has `OWN_END`, and what others do to the task takes the next free negative number below that.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.schema import EVENT_CHANNEL
from slackwater.store.sql import as_json, sql

OWN_END: Final = -1
STARTED: Final = 0

# Outbox and notification ride on the insert: nothing is told of a repeat.
_INSERT = sql("""
    WITH stored AS (
        INSERT INTO {s}.event (task_id, seq, epoch, counter, kind, data)
        SELECT :task_id, coalesce(max(seq), 0) + 1, :epoch, :counter, :kind, CAST(:data AS jsonb)
        FROM {s}.event WHERE task_id = :task_id
        ON CONFLICT (task_id, epoch, counter) DO NOTHING
        RETURNING task_id, seq, kind, data
    ), delivery AS (
        INSERT INTO {s}.outbox (task_id, seq, kind, data) SELECT task_id, seq, kind, data FROM stored WHERE :outbox
    )
    SELECT seq, CASE WHEN :tell THEN pg_notify(:channel, CAST(task_id AS text)) END FROM stored
""")
_INSERT_FOREIGN = sql("""
    WITH stored AS (
        INSERT INTO {s}.event (task_id, seq, epoch, counter, kind, data)
        SELECT :task_id, coalesce(max(seq), 0) + 1, :epoch,
               least(coalesce(min(counter) FILTER (WHERE epoch = :epoch), 0), :own_end) - 1, :kind,
               CAST(:data AS jsonb)
        FROM {s}.event WHERE task_id = :task_id
        RETURNING task_id, seq, kind, data
    ), delivery AS (
        INSERT INTO {s}.outbox (task_id, seq, kind, data) SELECT task_id, seq, kind, data FROM stored
    )
    SELECT seq, pg_notify(:channel, CAST(task_id AS text)) FROM stored
""")
_FIND = sql("SELECT seq FROM {s}.event WHERE task_id = :task_id AND epoch = :epoch AND counter = :counter")


async def add(
    connection: AsyncConnection,
    task_id: UUID,
    *,
    epoch: int,
    counter: int,
    kind: str,
    data: Any,
    outbox: bool = False,
    tell: bool = True,
) -> int:
    """Store a run's event; returns its number, the first one's when it is a repeat. The claim's row must be locked.

    `tell`: notify the streams at commit.
    """
    values = {
        "task_id": task_id,
        "epoch": epoch,
        "counter": counter,
        "kind": kind,
        "data": as_json(data),
        "outbox": outbox,
        "tell": tell,
        "channel": EVENT_CHANNEL,
    }
    stored = (await connection.execute(_INSERT, values)).one_or_none()
    if stored is None:
        found: int = (await connection.execute(_FIND, values)).scalar_one()
        return found
    return int(stored.seq)


async def add_foreign(connection: AsyncConnection, task_id: UUID, *, epoch: int, kind: str, data: Any) -> int:
    """Store what somebody else did to the task (sweep, admin, gateway), with its outbox row; returns its number.

    The claim's row must be locked, and the caller's premise must be what makes a repeat harmless.
    """
    values = {
        "task_id": task_id,
        "epoch": epoch,
        "own_end": OWN_END,
        "kind": kind,
        "data": as_json(data),
        "channel": EVENT_CHANNEL,
    }
    return int((await connection.execute(_INSERT_FOREIGN, values)).one().seq)
