"""Whether the servers behind are there. Rule: a task is accepted only while both could serve it.

Redis is asked at most once per `seconds`, by one reader for all; Postgres is asked by each request itself.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import redis.asyncio
from redis.exceptions import RedisError
from sqlalchemy import text

from slackwater.errors import StoreUnavailable
from slackwater.store import Store

ANSWER_SECONDS: Final = 2.0


class RedisProbe:
    """The slots' server answers; without it nothing could be claimed, so nothing is accepted."""

    def __init__(self, client: redis.asyncio.Redis, *, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._asked = float("-inf")
        self._there = False

    async def there(self) -> bool:
        async with self._lock:
            if time.monotonic() - self._asked >= self._seconds:
                self._there = await self._ping()
                self._asked = time.monotonic()
        return self._there

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.ping()
        except (RedisError, OSError, TimeoutError):
            return False
        return True


async def postgres_fault(store: Store) -> str | None:
    """Why Postgres can't take tasks, or None. Says nothing about where it is."""
    try:
        async with store.transaction() as connection:
            migrated = "SELECT to_regclass('slackwater.claim') IS NOT NULL, pg_is_in_recovery()"
            tables, standby = (await connection.execute(text(migrated))).one()
    except StoreUnavailable:
        return "no answer, or not writable"
    if standby:
        return "a standby, not the primary"
    return None if tables else "not migrated: run `slackwater migrate`"
