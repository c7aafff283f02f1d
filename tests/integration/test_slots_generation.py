"""Rule 6: Redis loses its data and no limit is passed: nobody claims until the running claims are counted again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from slackwater.claim import Claim, Ground
from slackwater.policy import Policy
from slackwater.redis_client import redis_client
from slackwater.slots import LOST, Full, Renewed, Slots, Taken, scopes
from slackwater.store import claiming, generation, recovery
from slackwater.store.generation import Restored
from tests.integration.world import World

LIMIT = Policy(worker_concurrency=2)
HELD = scopes(pool_uid="pool1", channel="", user_id="u1", policy=LIMIT)


@pytest.fixture
async def slots(redis: Redis, redis_url: str) -> AsyncIterator[Slots]:
    """Slots that were never set up: a fresh installation."""
    client = redis_client(redis_url)
    yield Slots(client)
    await client.aclose()


async def run_one(world: World, slots: Slots) -> Claim | None:
    """What a worker does: candidate, token, slots, claim."""
    candidate = await world.candidate(await world.task())
    under = await generation.read_generation(world.store)
    token = uuid4()
    if await slots.acquire(token, HELD, under) != Taken():
        return None
    claimed = await claiming.claim(world.store, candidate, worker_id="w1", token=token, generation=under)
    if claimed is None:
        await slots.release(token, HELD)
        return None
    return claimed.claim


async def allow_raise(world: World) -> None:
    """As if the last raise were 15 s old."""
    await world.sql("UPDATE slackwater.slot_generation SET raised_at = raised_at - interval '15 s'")


async def tokens(redis: Redis, slots: Slots) -> set[UUID]:
    members = await redis.zrange(slots.key(HELD[0]), 0, -1)
    return {UUID(member.decode()) for member in members if isinstance(member, bytes)}


async def test_a_fresh_installation_is_lost_until_it_is_set_up_and_then_whole(world: World, slots: Slots) -> None:
    assert await slots.look(0) == LOST

    assert await generation.restore(world.store, slots) is Restored.REBUILT
    assert await generation.read_generation(world.store) == 1
    assert await generation.restore(world.store, slots) is Restored.WHOLE
    assert isinstance(await slots.look(1), int)


async def test_after_a_flush_the_running_claims_hold_their_slots_again_and_no_more_fit(
    world: World, slots: Slots, redis: Redis
) -> None:
    await world.worker()
    await generation.restore(world.store, slots)
    live, expired = await run_one(world, slots), await run_one(world, slots)
    assert live is not None
    assert expired is not None
    await world.expire(expired)
    assert await run_one(world, slots) is None

    await redis.flushall()
    assert await run_one(world, slots) is None, "LOST: nothing is claimed meanwhile"
    await allow_raise(world)
    assert await generation.restore(world.store, slots) is Restored.REBUILT

    assert await tokens(redis, slots) == {live.token, expired.token}
    under = await generation.read_generation(world.store)
    assert await slots.acquire(uuid4(), HELD, under) == Full(HELD[0])
    assert await slots.renew(expired.token, HELD, under) == Renewed()


async def test_a_fenced_execution_keeps_its_slot_through_a_flush_until_its_leases_end(
    world: World, slots: Slots, redis: Redis
) -> None:
    await world.worker()
    await generation.restore(world.store, slots)
    claim = await run_one(world, slots)
    assert claim is not None
    await recovery.take_away(world.store, await world.seen(claim), Ground.CANCELLED)

    await redis.flushall()
    await allow_raise(world)
    await generation.restore(world.store, slots)
    assert await tokens(redis, slots) == {claim.token}
    touched = await generation.touch(world.store, slots)

    await redis.flushall()
    await allow_raise(world)
    await world.sql("UPDATE slackwater.claim SET claimable_from = clock_timestamp() - interval '1 ms'")
    await generation.restore(world.store, slots)
    assert await tokens(redis, slots) == set()
    assert touched != LOST


async def test_a_claim_whose_slot_was_taken_before_the_raise_is_refused(
    world: World, slots: Slots, redis: Redis
) -> None:
    """A worker paused between slot and claim, while Redis is flushed and rebuilt."""
    await world.worker()
    await generation.restore(world.store, slots)
    candidate = await world.candidate(await world.task())
    token = uuid4()
    assert await slots.acquire(token, HELD, 1) == Taken()

    await redis.flushall()
    await allow_raise(world)
    await generation.restore(world.store, slots)

    assert await claiming.claim(world.store, candidate, worker_id="w1", token=token, generation=1) is None


async def test_a_restore_waits_for_the_claim_in_flight_and_counts_it(world: World, slots: Slots, redis: Redis) -> None:
    await world.worker()
    await generation.restore(world.store, slots)
    task_id, token = await world.task(), uuid4()
    candidate = await world.candidate(task_id)
    assert await slots.acquire(token, HELD, 1) == Taken()
    async with world.holding("SELECT FROM slackwater.task WHERE id = %(id)s FOR UPDATE", id=task_id):
        claiming_ = asyncio.create_task(
            claiming.claim(world.store, candidate, worker_id="w1", token=token, generation=1)
        )
        await world.blocked()
        await redis.flushall()
        await allow_raise(world)
        restoring = asyncio.create_task(generation.restore(world.store, slots))
        await world.blocked(2)
        assert not restoring.done()

    assert await restoring is Restored.REBUILT
    assert await claiming_ is not None
    assert await tokens(redis, slots) == {token}


async def test_of_ten_concurrent_restorers_one_raises(world: World, slots: Slots) -> None:
    outcomes = await asyncio.gather(*(generation.restore(world.store, slots) for _ in range(10)))

    assert outcomes.count(Restored.REBUILT) == 1
    assert await generation.read_generation(world.store) == 1


async def test_a_lost_marker_is_raised_for_at_most_every_15_seconds(world: World, slots: Slots, redis: Redis) -> None:
    await generation.restore(world.store, slots)
    await redis.flushall()

    assert await generation.restore(world.store, slots) is Restored.WAIT
    assert await generation.read_generation(world.store) == 1
    await allow_raise(world)
    assert await generation.restore(world.store, slots) is Restored.REBUILT


async def test_a_token_denied_while_its_claim_holds_raises_a_generation_that_looks_whole_once(
    world: World, slots: Slots, redis: Redis
) -> None:
    """Redis lost single members: the marker is there, the slot is not."""
    await world.worker()
    await generation.restore(world.store, slots)
    claim = await run_one(world, slots)
    assert claim is not None
    await redis.delete(slots.key(HELD[0]))
    await allow_raise(world)

    outcomes = await asyncio.gather(*(generation.restore(world.store, slots, denied_under=1) for _ in range(5)))

    assert outcomes.count(Restored.REBUILT) == 1
    assert await generation.read_generation(world.store) == 2
    assert await tokens(redis, slots) == {claim.token}
    await allow_raise(world)
    assert await generation.restore(world.store, slots, denied_under=1) is Restored.WHOLE


async def test_a_rebuilder_that_was_paused_after_its_raise_changes_nothing_afterwards(
    world: World, slots: Slots, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.worker()
    reached, go_on = asyncio.Event(), asyncio.Event()
    rebuild = slots.rebuild

    async def paused(*given: Any) -> bool:
        reached.set()
        await go_on.wait()
        return await rebuild(*given)

    slow = Slots(slots.redis)
    monkeypatch.setattr(slow, "rebuild", paused)
    late = asyncio.create_task(generation.restore(world.store, slow))
    await reached.wait()
    assert await run_one(world, slots) is None, "raised, not rebuilt: still lost"
    await allow_raise(world)
    assert await generation.restore(world.store, slots) is Restored.REBUILT
    claim = await run_one(world, slots)
    assert claim is not None

    go_on.set()
    await late

    assert await generation.read_generation(world.store) == 2
    assert isinstance(await slots.look(2), int)
    assert await tokens(redis, slots) == {claim.token}


async def test_a_touch_keeps_the_slot_of_a_claim_that_nobody_renews(world: World, slots: Slots, redis: Redis) -> None:
    """A paused or cut-off worker: its slot lives as long as its claim, expired or not."""
    await world.worker()
    await generation.restore(world.store, slots)
    claim = await run_one(world, slots)
    assert claim is not None
    await world.expire(claim)
    key, member = slots.key(HELD[0]), str(claim.token)
    soon = float(await redis.zscore(key, member) or 0) - 85_000
    await redis.zadd(key, {member: soon})

    await generation.touch(world.store, slots)

    assert float(await redis.zscore(key, member) or 0) > soon + 40_000
    await redis.flushall()
    assert await generation.touch(world.store, slots) == LOST
    assert await redis.dbsize() == 0


async def test_concurrent_workers_never_pass_the_limit_while_redis_is_flushed_again_and_again(
    world: World, slots: Slots, redis: Redis
) -> None:
    await world.worker()
    await generation.restore(world.store, slots)
    most, flushed = 0, asyncio.Event()

    async def running() -> int:
        return int((await world.one("SELECT count(*)::int AS n FROM slackwater.claim WHERE state = 'running'"))["n"])

    async def work() -> None:
        """Until the flushes are over, and a little longer: then at least one claim is sure to be made."""
        nonlocal most
        more = 3
        while more:
            more -= flushed.is_set()
            claim = await run_one(world, slots)
            if claim is not None:
                most = max(most, await running())
                await recovery.take_away(world.store, await world.seen(claim), Ground.WITNESSED)
                await slots.release(claim.token, HELD)

    async def flush() -> None:
        for _ in range(6):
            await redis.flushall()
            await allow_raise(world)
            await generation.restore(world.store, slots)
        flushed.set()

    await asyncio.gather(flush(), *(work() for _ in range(6)))

    assert 0 < most <= 2
