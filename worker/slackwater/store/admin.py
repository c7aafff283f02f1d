"""What users and admins do to tasks and queues. Rule: each act restates what it found, moves the money with the state
and leaves an audit record; nothing here works on many tasks at once (R-ROLLOUT-14).

Cancel against completion: the first commit wins, the other learns the state that stands (rule 14). A running task is
taken away (rule 3); its execution learns of it at its next renewal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.claim import Ground, TaskState
from slackwater.errors import SlackwaterError
from slackwater.schema import POOL_CHANNEL, WAKE_CHANNEL
from slackwater.store import Store, events
from slackwater.store.recovery import running_claims, take_away
from slackwater.store.settling import Verdict, facts, settle
from slackwater.store.sql import as_json, sql

_LOOKS: Final = 5
"""A task may be claimed between our look and our act, again and again; more often than this nobody is that unlucky."""

_LOCK = sql("""
    SELECT state, epoch FROM {s}.claim
    WHERE task_id = :task_id AND (CAST(:user_id AS text) IS NULL OR user_id = :user_id) FOR UPDATE
""")
_AUDIT = sql("""
    INSERT INTO {s}.audit (who, action, task_id, detail) VALUES (:who, :action, :task_id, CAST(:detail AS jsonb))
""")
_PAUSE = sql("""
    UPDATE {s}.queue SET paused = :paused, served_since = clock_timestamp() WHERE name = :name RETURNING name
""")
_TELL_POOLS = sql("SELECT pg_notify(:channel, uid) FROM {s}.pool WHERE :name = ANY(queues)")
_WAKE = sql("SELECT pg_notify(:channel, :name)")

_WAITING: Final = frozenset({TaskState.QUEUED, TaskState.HELD})


class StateStands(SlackwaterError):
    """The task is in a state in which this can't be done; somebody was first, or it never could."""

    def __init__(self, state: TaskState) -> None:
        super().__init__(f"the task is {state}")
        self.state = state


async def cancel(store: Store, task_id: UUID, *, user_id: str | None = None, who: str) -> TaskState | None:
    """Cancel; returns the state it has now: cancelled, or unknown while a provider may still charge.

    None: no such task. Raises StateStands when it has ended already or is unknown.
    """
    return await _end(
        store,
        task_id,
        user_id=user_id,
        who=who,
        action="cancel",
        ground=Ground.CANCELLED,
        state=TaskState.CANCELLED,
        endable=_WAITING,
        error=("Cancelled", "cancelled on request"),
    )


async def finalize(store: Store, task_id: UUID, *, who: str, reason: str = "") -> TaskState | None:
    """End one task past every filter: failed and refunded. A running one with an open submission becomes unknown
    first, since its provider may still charge; finalize it again to settle that by hand.
    """
    return await _end(
        store,
        task_id,
        user_id=None,
        who=who,
        action="finalize",
        ground=Ground.ADMIN,
        state=TaskState.FAILED,
        endable=_WAITING | {TaskState.UNKNOWN},
        error=("Finalized", reason or "ended by an administrator"),
    )


async def _end(
    store: Store,
    task_id: UUID,
    *,
    user_id: str | None,
    who: str,
    action: str,
    ground: Ground,
    state: TaskState,
    endable: frozenset[TaskState],
    error: tuple[str, str],
) -> TaskState | None:
    found = TaskState.RUNNING
    for _ in range(_LOOKS):
        async with store.transaction() as connection:
            row = (await connection.execute(_LOCK, {"task_id": task_id, "user_id": user_id})).one_or_none()
            if row is None:
                return None
            found = TaskState(row.state)
            if found in endable:
                known = await facts(connection, task_id)
                # Only what is unknown already is settled while its submission is open: that is what finalize is for.
                into = TaskState.UNKNOWN if known.open and found is not TaskState.UNKNOWN else state
                verdict = Verdict(into, *error, on_request=state is TaskState.CANCELLED)
                await settle(connection, task_id, row.epoch, verdict, known)
                await events.add_foreign(connection, task_id, epoch=row.epoch, kind=into, data={"error_type": error[0]})
                await audit(connection, who, action, task_id, {"from": found, "to": into})
                return into
            if found is not TaskState.RUNNING:
                raise StateStands(found)
        seen = await running_claims(store, task_id=task_id)
        if seen and await take_away(store, seen[0], ground):
            async with store.transaction() as connection:
                now = (await connection.execute(_LOCK, {"task_id": task_id, "user_id": user_id})).one()
                await audit(connection, who, action, task_id, {"from": found, "to": now.state})
                return TaskState(now.state)
    raise StateStands(found)


async def pause(store: Store, queue: str, *, paused: bool, who: str) -> bool:
    """Stop or resume claims from a queue; running tasks go on. False: no such queue."""
    async with store.transaction() as connection:
        found = (await connection.execute(_PAUSE, {"name": queue, "paused": paused})).one_or_none()
        if found is None:
            return False
        await audit(connection, who, "pause" if paused else "resume", None, {"queue": queue})
        await connection.execute(_TELL_POOLS, {"channel": POOL_CHANNEL, "name": queue})
        if not paused:
            await connection.execute(_WAKE, {"channel": WAKE_CHANNEL, "name": queue})
        return True


async def audit(
    connection: AsyncConnection, who: str, action: str, task_id: UUID | None, detail: Mapping[str, Any]
) -> None:
    """Who did what to which task, in the transaction that did it."""
    values = {"who": who, "action": action, "task_id": task_id, "detail": as_json(dict(detail))}
    await connection.execute(_AUDIT, values)
