"""The queue: one round at a time per pool, every wake answered, a failing pool alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from slackwater_operator.errors import NotLeader
from slackwater_operator.rounds import Queue


@asynccontextmanager
async def running(queue: Queue) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(queue.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the queue signals nobody but its rounds
            await asyncio.sleep(0.005)


async def test_one_round_at_a_time_per_pool_and_a_wake_in_between_is_answered() -> None:
    gate, begun, at_once = asyncio.Event(), [], 0

    async def round_(uid: str) -> float:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        begun.append(uid)
        await gate.wait()
        at_once -= 1
        return 1000.0

    queue = Queue(round_, at_once=4)
    async with running(queue):
        queue.wake("a")
        await until(lambda: len(begun) == 1)
        for _ in range(5):
            queue.wake("a")
        gate.set()
        await until(lambda: len(begun) == 2)
    assert begun == ["a", "a"]


async def test_other_pools_go_on_while_one_is_busy() -> None:
    begun: list[str] = []

    async def round_(uid: str) -> float:
        begun.append(uid)
        if uid == "slow":
            await asyncio.Event().wait()
        return 1000.0

    queue = Queue(round_, at_once=4)
    async with running(queue):
        queue.wake("slow")
        queue.wake("quick")
        await until(lambda: "quick" in begun)


async def test_a_round_is_repeated_when_it_asked_for_it() -> None:
    begun: list[str] = []

    async def round_(uid: str) -> float:
        begun.append(uid)
        return 0.01

    queue = Queue(round_, at_once=1)
    async with running(queue):
        queue.wake("a")
        await until(lambda: len(begun) >= 3)


def failing() -> tuple[list[str], Callable[[str], Awaitable[float]]]:
    begun: list[str] = []

    async def round_(uid: str) -> float:
        begun.append(uid)
        raise RuntimeError("no")

    return begun, round_


async def test_a_failing_pool_is_not_tried_again_by_mere_events() -> None:
    begun, round_ = failing()
    queue = Queue(round_, at_once=1)
    async with running(queue):
        queue.wake("a")
        await until(lambda: len(begun) == 1)
        for _ in range(50):
            queue.wake("a")
            await asyncio.sleep(0.002)
    assert begun == ["a"]


async def test_an_edit_of_the_resource_does_not_wait_for_the_pause() -> None:
    begun, round_ = failing()
    queue = Queue(round_, at_once=1)
    async with running(queue):
        queue.wake("a")
        await until(lambda: len(begun) == 1)
        queue.wake("a", urgent=True)
        await until(lambda: len(begun) == 2)


async def test_a_lost_lease_ends_the_queue() -> None:
    async def round_(uid: str) -> float:
        raise NotLeader("gone")

    queue = Queue(round_, at_once=1)
    async with running(queue) as task:
        queue.wake("a")
        with pytest.raises(NotLeader):
            await asyncio.wait_for(task, 10)


async def test_a_pool_that_is_gone_is_forgotten_and_its_age_with_it() -> None:
    async def round_(uid: str) -> None:
        return None

    queue = Queue(round_, at_once=1)
    async with running(queue):
        queue.wake("a")
        await until(lambda: not queue._pools)
    assert queue.oldest_try_seconds() == 0


async def test_retries_of_a_failing_pool_stay_under_ten_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, round_ = failing()
    clock = [0.0]
    monkeypatch.setattr("slackwater_operator.rounds.time.monotonic", lambda: clock[0])
    queue = Queue(round_, at_once=1)
    queue.wake("a")
    for _ in range(600):
        await queue._start_due()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock[0] += 0.1
    assert 3 <= len(begun) <= 10
