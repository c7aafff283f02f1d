"""Admission. Rule: a task is admitted whole or not at all, and exactly up to the limits, however many ask at once.

The idempotency key comes first (a fast read, and again under the user's lock), so that a repeat gets the first task
even when all is full. Then the locks user → queue, the counts in a later statement, and one statement that writes task,
claim, reserve, event and outbox. Claims take neither lock; requeues pass no gate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater import limits as door
from slackwater.admission import Code, Limits, refused_by
from slackwater.errors import InvalidInput, Refused
from slackwater.ids import new_id
from slackwater.policy import Policy, unreadable
from slackwater.schema import WAKE_CHANNEL
from slackwater.store import Store
from slackwater.store import admission_sql as sql
from slackwater.store.order import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A task as asked for. Bad values raise InvalidInput when it is submitted, before anything is written."""

    type: str
    user_id: str
    payload: Any
    queue: str = "default"
    channel: str = ""
    priority: int = 0
    cost: float = 1.0
    run_at: datetime | None = None
    idempotency_key: str | None = None
    reserve: float | None = None
    """What is set aside for it; None: its cost."""
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    task_id: UUID
    replayed: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was counted under the lock; the average and the running tasks are added outside it."""

    code: Code
    queued: int
    limit: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The first tasks of a request that were accepted, and why the next one was not. Later ones were not tried."""

    accepted: tuple[Accepted, ...]
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class _Checked:
    submit: Submit
    payload: str
    body_hash: str


async def submit(store: Store, request: Submit, limits: Limits | None = None) -> Accepted:
    """One task. Raises Refused with the code and what was counted. `limits` None: those of the stored policy."""
    batch = await submit_many(store, [request], limits)
    if batch.refusal is not None:
        counted = {"queued_count": batch.refusal.queued, "limit": batch.refusal.limit}
        raise Refused(batch.refusal.code, counted)
    return batch.accepted[0]


async def submit_many(store: Store, requests: Sequence[Submit], limits: Limits | None = None) -> Batch:
    """Tasks of one user, in their order, in one transaction. The first without room ends it; those before it stay.

    Raises Refused for another request under a known key; PolicyUnreadable rather than admit without a limit.
    """
    checked = [_check(request, f"tasks[{i}]." if len(requests) > 1 else "") for i, request in enumerate(requests)]
    if not checked:
        return Batch(())
    user_id = _only_user(requests)
    keys = [c.submit.idempotency_key for c in checked if c.submit.idempotency_key is not None]
    if len(keys) == len(checked):
        async with store.transaction() as connection:
            known = await _known(connection, user_id, keys)
        if len(known) == len(set(keys)):
            return Batch(tuple(_replay(c, known) for c in checked))
    async with store.transaction() as connection:
        await connection.execute(sql.LOCK_USER, {"user_id": user_id})
        known = await _known(connection, user_id, keys) if keys else {}
        return await _admit(connection, user_id, checked, known, limits)


async def _admit(
    connection: AsyncConnection,
    user_id: str,
    checked: Sequence[_Checked],
    known: dict[str, tuple[UUID, str]],
    given: Limits | None,
) -> Batch:
    order = Order(connection, user_id)
    await order.prepare((c.submit.queue, c.submit.channel) for c in checked)
    await connection.execute(sql.LOCK_SYSTEM)
    counted = await count(connection, user_id, given, channels={c.submit.channel for c in checked})
    limits, user_queued, system_queued = counted.limits, counted.user_queued, counted.system_queued
    accepted: list[Accepted] = []
    rows: list[Mapping[str, object]] = []
    refused: Refusal | None = None
    for one in checked:
        key = one.submit.idempotency_key
        if key is not None and key in known:
            accepted.append(_replay(one, known))
            continue
        channel = one.submit.channel
        waiting = counted.channels.get(channel, 0)
        code = refused_by(
            user_queued=user_queued,
            system_queued=system_queued,
            limits=limits,
            channel=channel,
            channel_queued=waiting,
        )
        if code is None and order.closed(one.submit.queue):
            code = Code.QUEUE_CLOSED
        if code is not None:
            refused = refusal(code, user_queued, system_queued, limits, channel=channel, channel_queued=waiting)
            break
        task_id = new_id()
        wish = one.submit
        place = order.key(wish.queue, wish.channel, cost=wish.cost, priority=wish.priority, weight=limits.weight)
        rows.append(_row(one, task_id, place))
        accepted.append(Accepted(task_id, replayed=False))
        if key is not None:
            known[key] = (task_id, one.body_hash)
        user_queued, system_queued = user_queued + 1, system_queued + 1
        if channel in counted.channels:
            counted.channels[channel] += 1
    if rows:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        shares = order.shares()
        more = {"share_queue": list(shares), "share_finish": list(shares.values()), "wake": WAKE_CHANNEL}
        await connection.execute(sql.INSERT, {**columns, **more, "user_id": user_id})
    return Batch(tuple(accepted), refused)


@dataclass(frozen=True, slots=True)
class Counted:
    """How full it is, and how full it may be."""

    user_queued: int
    system_queued: int
    limits: Limits
    channels: dict[str, int]
    """What waits for each channel that has a limit and was asked for."""


async def count(
    connection: AsyncConnection, user_id: str, given: Limits | None = None, *, channels: Iterable[str] = ()
) -> Counted:
    """Counted under the locks, with the policy as it stands in that same statement (R-CACHE-10)."""
    row = (await connection.execute(sql.COUNTS, {"user_id": user_id})).one()
    if given is None:
        try:
            given = Limits.of(Policy.read(row.policy), user_id)
        except InvalidInput as error:
            raise unreadable(error) from error
    capped = sorted(set(channels) & set(given.channel_pending))
    waiting = dict.fromkeys(capped, 0)
    if capped:
        rows = await connection.execute(sql.CHANNEL_COUNTS, {"channels": capped})
        waiting |= {found.channel: int(found.queued) for found in rows}
    return Counted(int(row.user_queued), int(row.system_queued), given, waiting)


def _check(request: Submit, prefix: str) -> _Checked:
    now = datetime.now(UTC)  # only to refuse instants a year away
    key = request.idempotency_key
    submit = Submit(
        type=door.check_name(request.type, field=f"{prefix}type"),
        user_id=door.check_user(request.user_id),
        payload=None,
        queue=door.check_name(request.queue, field=f"{prefix}queue"),
        channel=door.check_channel(request.channel, field=f"{prefix}channel"),
        priority=door.check_priority(request.priority, field=f"{prefix}priority"),
        cost=door.check_cost(request.cost, field=f"{prefix}cost"),
        run_at=None if request.run_at is None else door.check_run_at(request.run_at, now=now, field=f"{prefix}run_at"),
        idempotency_key=None if key is None else door.check_idempotency_key(key),
        reserve=door.check_reserve(
            request.cost if request.reserve is None else request.reserve, field=f"{prefix}reserve"
        ),
        trace_id=request.trace_id,
    )
    payload = door.check_payload(request.payload, field=f"{prefix}payload")
    return _Checked(submit, payload, "" if key is None else _body_hash(submit, request.payload))


def _body_hash(request: Submit, payload: Any) -> str:
    """What makes a repeat the same request: all that was asked for, in any order of keys; not the trace."""
    run_at = None if request.run_at is None else request.run_at.astimezone(UTC).isoformat()
    parts = (request.type, request.queue, request.channel, request.priority, request.cost, run_at, request.reserve)
    text = json.dumps([parts, payload], sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _row(one: _Checked, task_id: UUID, order_key: float) -> dict[str, object]:
    s = one.submit
    return {
        "id": task_id,
        "type": s.type,
        "queue": s.queue,
        "channel": s.channel,
        "payload": one.payload,
        "priority": s.priority,
        "cost": s.cost,
        "trace_id": s.trace_id,
        "run_at": s.run_at,
        "order_key": order_key,
        "reserve": s.reserve,
        "idempotency_key": s.idempotency_key,
        "body_hash": one.body_hash,
    }


async def _known(connection: AsyncConnection, user_id: str, keys: Sequence[str]) -> dict[str, tuple[UUID, str]]:
    rows = await connection.execute(sql.REPLAYED, {"user_id": user_id, "keys": list(keys)})
    return {row.key: (row.task_id, row.body_hash) for row in rows}


def _replay(one: _Checked, known: Mapping[str, tuple[UUID, str]]) -> Accepted:
    task_id, body_hash = known[one.submit.idempotency_key or ""]
    if body_hash != one.body_hash:
        raise Refused(Code.IDEMPOTENCY_CONFLICT, {"idempotency_key": one.submit.idempotency_key})
    return Accepted(task_id, replayed=True)


def refusal(
    code: Code, user_queued: int, system_queued: int, limits: Limits, *, channel: str = "", channel_queued: int = 0
) -> Refusal:
    """What the lock's holder counted, of the user, the channel or of all."""
    if code is Code.CHANNEL_QUEUE_FULL:
        return Refusal(code, channel_queued, limits.channel_pending[channel], limits.worker_concurrency)
    if code is Code.USER_QUEUE_FULL:
        return Refusal(code, user_queued, limits.user_pending, limits.worker_concurrency)
    return Refusal(code, system_queued, limits.system_pending, limits.worker_concurrency)


def _only_user(requests: Sequence[Submit]) -> str:
    users = {request.user_id for request in requests}
    if len(users) != 1:
        raise ValueError("a request creates tasks of one user")
    return users.pop()
