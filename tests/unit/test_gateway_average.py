"""The cached average: one load for all, an hour of refusals costs sixty queries, a broken store costs none of them."""

from __future__ import annotations

import asyncio

from slackwater.gateway.average import RETRY_SECONDS, TTL_SECONDS, CachedAverage


class Origin:
    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.broken = False
        self.value = 60.0

    async def load(self) -> float:
        self.asked += 1
        await asyncio.sleep(0)
        if self.broken:
            raise RuntimeError("no store")
        return self.value

    def cached(self) -> CachedAverage:
        return CachedAverage(self.load, clock=lambda: self.now)


async def test_readers_at_the_same_time_share_one_load() -> None:
    origin = Origin()
    average = origin.cached()
    assert await asyncio.gather(*(average.get() for _ in range(100))) == [60.0] * 100
    assert origin.asked == 1


async def test_it_is_loaded_again_after_a_minute_and_not_before() -> None:
    origin = Origin()
    average = origin.cached()
    await average.get()
    origin.value = 90.0
    origin.now = TTL_SECONDS - 0.1
    assert await average.get() == 60.0
    origin.now = TTL_SECONDS
    assert await average.get() == 90.0
    assert origin.asked == 2


async def test_a_failed_load_gives_the_default_and_is_not_repeated_at_once() -> None:
    origin = Origin()
    average = origin.cached()
    origin.broken = True
    assert [await average.get() for _ in range(3)] == [120.0] * 3
    assert origin.asked == 1
    origin.broken = False
    origin.now = RETRY_SECONDS
    assert await average.get() == 60.0


async def test_a_reader_that_is_cancelled_takes_nothing_from_the_others() -> None:
    origin = Origin()
    average = origin.cached()
    first, second = asyncio.create_task(average.get()), asyncio.create_task(average.get())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 60.0
