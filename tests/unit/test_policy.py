"""The policy: read strictly, cached for 2 s, one load for all who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slackwater.errors import InvalidInput, PolicyUnreadable
from slackwater.policy import Policy, PolicyCache


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Loads that can be made to wait or fail."""

    def __init__(self) -> None:
        self.loads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails: Exception | None = None

    async def __call__(self) -> Policy:
        self.loads += 1
        number = self.loads
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return Policy(worker_concurrency=number)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def cache(source: Source, clock: Clock) -> PolicyCache:
    return PolicyCache(source, ttl_seconds=2.0, clock=clock)


async def test_a_policy_is_kept_for_two_seconds_from_the_asking(
    cache: PolicyCache, source: Source, clock: Clock
) -> None:
    source.gate.clear()
    first = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.now += 1.5
    source.gate.set()
    assert (await first).worker_concurrency == 1
    clock.now += 0.4
    assert (await cache.get()).worker_concurrency == 1
    clock.now += 0.2
    assert (await cache.get()).worker_concurrency == 2


async def test_all_who_wait_share_one_load(cache: PolicyCache, source: Source) -> None:
    got = await asyncio.gather(*(cache.get() for _ in range(20)))

    assert source.loads == 1
    assert len(set(map(id, got))) == 1


async def test_a_failure_is_told_to_all_cools_down_for_a_second_and_an_old_policy_never_stands_in(
    cache: PolicyCache, source: Source, clock: Clock
) -> None:
    await cache.get()
    clock.now += 3
    source.fails = PolicyUnreadable("gone")
    for _ in range(3):
        with pytest.raises(PolicyUnreadable):
            await cache.get()
    assert source.loads == 2
    clock.now += 1.1
    source.fails = None
    assert (await cache.get()).worker_concurrency == 3


async def test_a_cancelled_reader_does_not_take_the_load_from_the_others(cache: PolicyCache, source: Source) -> None:
    source.gate.clear()
    first, second = asyncio.create_task(cache.get()), asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    source.gate.set()

    assert (await second).worker_concurrency == 1
    assert source.loads == 1


async def test_dropping_makes_the_next_reader_load_and_forgets_a_load_under_way(
    cache: PolicyCache, source: Source
) -> None:
    source.gate.clear()
    old = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.drop()
    source.gate.set()

    assert (await cache.get()).worker_concurrency == 2
    await old
    assert (await cache.get()).worker_concurrency == 2


GOOD: dict[str, Any] = {"user_pending_limit": 3, "system_pending_limit": 20, "worker_concurrency": 4}


def test_a_document_goes_there_and_back() -> None:
    policy = Policy(5, 50, 6, pools={"p": 1}, channels={"c": 2}, users={"u": 3}, weights={"u": 0.5})

    assert Policy.read(policy.document()) == policy
    assert Policy.read(GOOD | {"something_newer": True}) == Policy()


def test_limits_by_name_fall_back_to_the_general_one_or_to_none() -> None:
    policy = Policy(worker_concurrency=4, pools={"big": 100}, channels={"c": 2}, users={"u": 1}, weights={"u": 3.0})

    assert (policy.pool_limit("big"), policy.pool_limit("other")) == (100, 4)
    assert (policy.channel_limit("c"), policy.channel_limit("other")) == (2, None)
    assert (policy.user_limit("u"), policy.user_limit("other")) == (1, None)
    assert (policy.weight("u"), policy.weight("other")) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "policy"),
        ([], "policy"),
        ({}, "user_pending_limit"),
        (GOOD | {"worker_concurrency": -1}, "worker_concurrency"),
        (GOOD | {"worker_concurrency": True}, "worker_concurrency"),
        (GOOD | {"worker_concurrency": 2.5}, "worker_concurrency"),
        (GOOD | {"worker_concurrency": "4"}, "worker_concurrency"),
        (GOOD | {"channels": []}, "channels"),
        (GOOD | {"channels": {"c": None}}, "channels.c"),
        (GOOD | {"weights": {"u": 0}}, "weights.u"),
        (GOOD | {"weights": {"u": float("nan")}}, "weights.u"),
    ],
)
def test_a_bad_document_is_refused_by_the_name_of_its_field(document: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Policy.read(document)
    assert caught.value.field == field
