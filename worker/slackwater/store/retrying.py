"""Another run of an ended task, asked for by its user. Rule: it passes admission like a new one, under settlement n+1.

A refused retry leaves the task as it was (R-ADMIT-25). `claimable_from` is kept if it lies ahead: the lease of a fenced
execution may not have ended yet (rule 3).
"""

from __future__ import annotations

from uuid import UUID

from slackwater.admission import Code, Limits, refused_by
from slackwater.claim import TaskState
from slackwater.schema import WAKE_CHANNEL
from slackwater.store import Store, events
from slackwater.store import admission_sql as door
from slackwater.store.admin import StateStands, audit
from slackwater.store.admission import Refusal, count, refusal
from slackwater.store.order import Order
from slackwater.store.sql import sql

_LOCK = sql("""
    SELECT state, epoch, queue, channel, user_id FROM {s}.claim
    WHERE task_id = :task_id AND (CAST(:user_id AS text) IS NULL OR user_id = :user_id) FOR UPDATE
""")
_TASK = sql("""
    UPDATE {s}.task SET settlement = settlement + 1, attempts = 0, interruptions = 0, progress = NULL, result = NULL,
        error_info = NULL, started_at = NULL, finished_at = NULL, pending_since = clock_timestamp(),
        updated_at = clock_timestamp()
    WHERE id = :task_id RETURNING settlement, cost, priority
""")
_WISH = sql("SELECT cost, priority FROM {s}.task WHERE id = :task_id FOR NO KEY UPDATE")
_CLAIM = sql("""
    UPDATE {s}.claim SET state = 'queued', order_key = :order_key,
        claimable_from = greatest(claimable_from, clock_timestamp())
    WHERE task_id = :task_id
""")
_RESERVE = sql("""
    INSERT INTO {s}.settlement (task_id, n, user_id, reserved)
    SELECT task_id, n + 1, user_id, reserved FROM {s}.settlement WHERE task_id = :task_id AND n = :n - 1
""")
_ENDS = frozenset({TaskState.FAILED, TaskState.CANCELLED})


async def retry(
    store: Store, task_id: UUID, limits: Limits | None = None, *, user_id: str | None = None, who: str
) -> Refusal | bool:
    """True: queued again. False: the user has no such task. Raises StateStands unless it failed or was cancelled."""
    async with store.transaction() as connection:
        row = (await connection.execute(_LOCK, {"task_id": task_id, "user_id": user_id})).one_or_none()
        if row is None:
            return False
        if row.state not in _ENDS:
            raise StateStands(TaskState(row.state))
        wish = (await connection.execute(_WISH, {"task_id": task_id})).one()
        await connection.execute(door.LOCK_USER, {"user_id": row.user_id})
        order = Order(connection, row.user_id)
        await order.prepare([(row.queue, row.channel)])
        await connection.execute(door.LOCK_SYSTEM)
        found = await count(connection, row.user_id, limits, channels=[row.channel])
        waiting = found.channels.get(row.channel, 0)
        code = refused_by(
            user_queued=found.user_queued,
            system_queued=found.system_queued,
            limits=found.limits,
            channel=row.channel,
            channel_queued=waiting,
        )
        if code is None and order.closed(row.queue):
            code = Code.QUEUE_CLOSED
        if code is not None:
            return refusal(
                code,
                found.user_queued,
                found.system_queued,
                found.limits,
                channel=row.channel,
                channel_queued=waiting,
            )
        key = order.key(row.queue, row.channel, cost=wish.cost, priority=wish.priority, weight=found.limits.weight)
        n = (await connection.execute(_TASK, {"task_id": task_id})).one().settlement
        await connection.execute(_CLAIM, {"task_id": task_id, "order_key": key})
        await connection.execute(_RESERVE, {"task_id": task_id, "n": n})
        share = {"queue": row.queue, "user_id": row.user_id, "finish": order.shares()[row.queue]}
        await connection.execute(door.SAVE_SHARE, share)
        await events.add_foreign(connection, task_id, epoch=row.epoch, kind=TaskState.QUEUED, data={"settlement": n})
        await audit(connection, who, "retry", task_id, {"settlement": n})
        await connection.execute(door.WAKE, {"channel": WAKE_CHANNEL, "queue": row.queue})
        return True
