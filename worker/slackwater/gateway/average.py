"""The average duration behind each refusal. Rule: an overload asks the database once a minute, not once a refusal.

Readers share one load; a load that fails gives 120 s, and the next is tried after 5 s (R-ADMIT-18, 20).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from slackwater.admission import DEFAULT_AVERAGE_SECONDS

TTL_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0
LOAD_SECONDS: Final = 2.0


class CachedAverage:
    def __init__(self, load: Callable[[], Awaitable[float]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value = DEFAULT_AVERAGE_SECONDS
        self._until = float("-inf")

    async def get(self) -> float:
        """Seconds per task; never raises for want of a figure."""
        async with self._lock:
            if self._clock() >= self._until:
                try:
                    async with asyncio.timeout(LOAD_SECONDS):
                        self._value = await self._load()
                    self._until = self._clock() + TTL_SECONDS
                except Exception:  # a refusal goes out complete, whatever is wrong with the store
                    self._value = DEFAULT_AVERAGE_SECONDS
                    self._until = self._clock() + RETRY_SECONDS
        return self._value
