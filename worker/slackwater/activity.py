"""Signals of activity (rule 10). Rule: only the outside party moves the producer's signal; no judge touches it.

*Producer*: a time in Redis by the server's clock, written when the heartbeat endpoint is called, a chunk uploaded or a
row submitted, together with the task's `updated_at`, which stands in for it when Redis is unreachable, has no entry, or
its clock is off. The entry outlives the limit, so that "old" and "missing" differ (R-STALE-12). *Execution*: the claim
row's `active_at` (see `store.fence.renew`). Judging is `silent_for`, a pure function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from slackwater.claim import RunningClaim
from slackwater.errors import SlotsUnavailable
from slackwater.settings import Constants
from slackwater.store import Store
from slackwater.store.sql import sql

DEFAULT_PREFIX: Final = "slackwater:activity"
KEEP_BEYOND_SECONDS: Final = 86_400.0
_NOTE: Final = """
local t = redis.call('TIME')
redis.call('SET', KEYS[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), 'PX', ARGV[1])
return 1
"""
_TOUCH = sql("""
    UPDATE {s}.task SET updated_at = clock_timestamp() WHERE id = :task_id AND finished_at IS NULL RETURNING id
""")


@dataclass(frozen=True)
class Signals:
    """The producers' last activity in ms of the Redis server's clock, which stood at `now`; missing tasks have none."""

    now: int
    last: Mapping[UUID, int]


class Activity:
    """The producers' entries. Raises SlotsUnavailable when Redis gives no answer."""

    def __init__(self, redis: Redis, *, prefix: str = DEFAULT_PREFIX, constants: Constants | None = None) -> None:
        self._redis = redis
        self._prefix = prefix
        self._seconds = (constants or Constants()).slot_timeout_seconds

    async def note(self, task_id: UUID, *, limit_seconds: float) -> None:
        """The producer was active now. `limit_seconds`: the type's stale limit, which the entry outlives by a day."""
        keep = round((limit_seconds + KEEP_BEYOND_SECONDS) * 1000)
        await self._ask(self._redis.eval(_NOTE, 1, self._key(task_id), keep))

    async def read(self, task_ids: Sequence[UUID]) -> Signals:
        """The entries of those tasks."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.mget([self._key(task_id) for task_id in task_ids])
        (seconds, micros), values = await self._ask(pipeline.execute())
        known = {task_id: int(value) for task_id, value in zip(task_ids, values, strict=True) if value is not None}
        return Signals(seconds * 1000 + micros // 1000, known)

    async def _ask(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                return await call
        except (RedisError, OSError, TimeoutError) as error:
            raise SlotsUnavailable(f"no answer from Redis: {type(error).__name__}: {error}") from error

    def _key(self, task_id: UUID) -> str:
        return f"{self._prefix}:{task_id}"


async def producer_active(store: Store, activity: Activity, task_id: UUID, *, limit_seconds: float) -> bool:
    """Real activity of the outside party: both marks move. False: no such task, or it has ended.

    The row first, so that the stand-in is never older than the entry. Raises StoreUnavailable, SlotsUnavailable.
    """
    async with store.transaction() as connection:
        if (await connection.execute(_TOUCH, {"task_id": task_id})).one_or_none() is None:
            return False
    await activity.note(task_id, limit_seconds=limit_seconds)
    return True


def silent_for(seen: RunningClaim, *, fed: bool, signals: Signals | None, skew_seconds: float) -> float:
    """Seconds since the last sign of life that counts for this type.

    `signals` None: Redis is unreachable. Nothing else than the declared signal is looked at (R-STALE-06).
    """
    if not fed:
        return _seconds(seen.active_at, seen.read_at)
    if signals is not None:
        last = signals.last.get(seen.task_id)
        apart = abs(signals.now / 1000 - seen.read_at.timestamp())
        if last is not None and apart <= skew_seconds:
            return (signals.now - last) / 1000
    return _seconds(seen.updated_at, seen.read_at)


def _seconds(since: datetime, until: datetime) -> float:
    return (until - since).total_seconds()
