"""Rule 5: slots never exceed their limit, whatever is renewed, given back or run out of in between."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from slackwater.errors import SlotsUnavailable
from slackwater.policy import Policy
from slackwater.redis_client import redis_client
from slackwater.settings import Constants
from slackwater.slots import (
    LOST,
    Denied,
    Exists,
    Full,
    Holder,
    Kind,
    Lost,
    Released,
    Renewed,
    Scope,
    Slots,
    Taken,
    Touched,
    scopes,
)
from tests.integration.servers import Valkey

POOL = Scope(Kind.POOL, "p1", 3)
CHANNEL = Scope(Kind.CHANNEL, "c1", 2)
USER = Scope(Kind.USER, "u1", None)
ALL = (POOL, CHANNEL, USER)


@pytest.fixture
async def slots(redis: Redis, redis_url: str) -> AsyncIterator[Slots]:
    """Slots of generation 1, empty."""
    client = redis_client(redis_url)
    made = Slots(client)
    assert await made.rebuild(1, [])
    yield made
    await client.aclose()


async def now_ms(redis: Redis) -> int:
    seconds, micros = await redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def end_lease(redis: Redis, slots: Slots, token: UUID, *held: Scope) -> None:
    """Let a member's lease run out, without waiting for it."""
    for scope in held:
        await redis.zadd(slots.key(scope), {str(token): await now_ms(redis) - 1}, xx=True)


async def test_fifty_concurrent_acquirers_get_exactly_the_limit(slots: Slots) -> None:
    answers = await asyncio.gather(*(slots.acquire(uuid4(), ALL, 1) for _ in range(50)))

    assert answers.count(Taken()) == 2
    assert answers.count(Full(CHANNEL)) == 48
    assert await slots.count(*ALL) == [2, 2, 2]


async def test_whoever_finds_one_scope_full_takes_none(slots: Slots, redis: Redis) -> None:
    other = Scope(Kind.USER, "u2", 1)
    assert await slots.acquire(uuid4(), (other,), 1) == Taken()

    assert await slots.acquire(uuid4(), (POOL, CHANNEL, other), 1) == Full(other)

    assert await slots.count(POOL, CHANNEL, other) == [0, 0, 1]
    assert await redis.exists(slots.key(POOL), slots.key(CHANNEL)) == 0


async def test_a_limit_of_zero_lets_nobody_in_and_no_limit_still_counts(slots: Slots) -> None:
    closed = Scope(Kind.POOL, "closed", 0)

    assert await slots.acquire(uuid4(), (closed,), 1) == Full(closed)
    for _ in range(5):
        assert await slots.acquire(uuid4(), (USER,), 1) == Taken()
    assert await slots.acquire(uuid4(), (Scope(Kind.USER, "u1", 5),), 1) == Full(Scope(Kind.USER, "u1", 5))


async def test_a_token_that_holds_a_slot_is_refused_a_second_time(slots: Slots) -> None:
    token = uuid4()
    await slots.acquire(token, (CHANNEL,), 1)

    assert await slots.acquire(token, ALL, 1) == Exists(CHANNEL)
    assert await slots.count(*ALL) == [0, 1, 0]


async def test_giving_back_removes_that_one_token_as_often_as_one_likes(slots: Slots) -> None:
    one, two = uuid4(), uuid4()
    await slots.acquire(one, ALL, 1)
    await slots.acquire(two, ALL, 1)

    assert await slots.release(one, ALL) == Released(3)
    assert await slots.release(one, ALL) == Released(0)
    assert await slots.count(*ALL) == [1, 1, 1]
    assert await slots.renew(two, ALL, 1) == Renewed()
    assert await slots.renew(one, ALL, 1) == Denied(POOL)


async def test_an_expired_or_missing_token_is_denied_and_never_comes_back(slots: Slots, redis: Redis) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    await end_lease(redis, slots, token, CHANNEL)

    assert await slots.renew(token, ALL, 1) == Denied(CHANNEL)
    assert await slots.renew(uuid4(), ALL, 1) == Denied(POOL)
    assert await slots.count(*ALL) == [1, 0, 1]


async def test_only_expired_members_make_room(slots: Slots, redis: Redis) -> None:
    gone, stays = uuid4(), uuid4()
    await slots.acquire(gone, (CHANNEL,), 1)
    await slots.acquire(stays, (CHANNEL,), 1)
    await end_lease(redis, slots, gone, CHANNEL)

    assert await slots.acquire(uuid4(), (CHANNEL,), 1) == Taken()
    assert await slots.acquire(uuid4(), (CHANNEL,), 1) == Full(CHANNEL)
    assert await slots.renew(stays, (CHANNEL,), 1) == Renewed()
    assert await redis.zscore(slots.key(CHANNEL), str(gone)) is None


async def test_a_renewed_slot_holds_one_member_for_another_lease(slots: Slots, redis: Redis) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    soon = await now_ms(redis) + 5_000
    await redis.zadd(slots.key(POOL), {str(token): soon})

    assert await slots.renew(token, ALL, 1) == Renewed()

    score = await redis.zscore(slots.key(POOL), str(token))
    assert score is not None
    assert 59_000 < score - await now_ms(redis) <= 60_000
    assert await slots.count(*ALL) == [1, 1, 1]


async def test_the_keys_expiry_follows_the_longest_lease_in_its_set(slots: Slots, redis: Redis, redis_url: str) -> None:
    """R-TEST-07: long and short leases mixed."""
    client = redis_client(redis_url)
    short = Slots(client, constants=Constants(slot_seconds=47))
    long = uuid4()
    await slots.acquire(long, (POOL,), 1)
    before = await redis.pexpiretime(slots.key(POOL))

    assert await short.acquire(uuid4(), (POOL,), 1) == Taken()
    assert await short.renew(long, (POOL,), 1) == Renewed()

    assert await redis.pexpiretime(slots.key(POOL)) >= before
    score = await redis.zscore(slots.key(POOL), str(long))
    assert score is not None
    assert await redis.pexpiretime(slots.key(POOL)) >= score > await now_ms(redis) + 46_000
    await client.aclose()


async def test_the_keys_expiry_is_not_brought_forward_when_its_longest_member_goes(
    slots: Slots, redis: Redis, redis_url: str
) -> None:
    client = redis_client(redis_url)
    short = Slots(client, constants=Constants(slot_seconds=47))
    long = uuid4()
    await slots.acquire(long, (POOL,), 1)
    await short.acquire(uuid4(), (POOL,), 1)
    before = await redis.pexpiretime(slots.key(POOL))

    await slots.release(long, (POOL,))
    await short.acquire(uuid4(), (POOL,), 1)

    assert await redis.pexpiretime(slots.key(POOL)) == before
    await client.aclose()


async def test_a_longer_lease_lengthens_the_keys_expiry(slots: Slots, redis: Redis, redis_url: str) -> None:
    client = redis_client(redis_url)
    long = Slots(client, constants=Constants(slot_seconds=120))
    await slots.acquire(uuid4(), (POOL,), 1)
    before = await redis.pexpiretime(slots.key(POOL))

    await long.acquire(uuid4(), (POOL,), 1)

    assert await redis.pexpiretime(slots.key(POOL)) > before + 10_000
    await client.aclose()


LOSSES = {
    "missing": lambda redis, slots: redis.flushall(),
    "generation": lambda redis, slots: redis.hset(slots.marker, "generation", 2),
    "restarted": lambda redis, slots: redis.hset(slots.marker, "run_id", "0" * 40),
    "old": lambda redis, slots: redis.hset(slots.marker, "touched", int(time.time() * 1000) - 45_100),
    "clock": lambda redis, slots: redis.hset(slots.marker, "touched", int(time.time() * 1000) + 6_000),
}


@pytest.mark.parametrize("reason", LOSSES)
async def test_a_redis_that_lost_its_slots_answers_only_lost(slots: Slots, redis: Redis, reason: str) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    await LOSSES[reason](redis, slots)

    answers: list[object] = [
        await slots.acquire(uuid4(), ALL, 1),
        await slots.renew(token, ALL, 1),
        await slots.touch(1, [], read_at=await now_ms(redis)),
        await slots.look(1),
    ]

    assert answers == [LOST] * 4
    assert [answer.reason for answer in answers if isinstance(answer, Lost)] == [reason] * 4


async def test_a_slot_is_given_back_even_to_a_redis_that_lost_the_others(slots: Slots, redis: Redis) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    await redis.delete(slots.marker)

    assert await slots.release(token, ALL) == Released(3)


async def test_a_touch_extends_and_never_inserts_nor_revives(slots: Slots, redis: Redis) -> None:
    held, expired, unknown = (Holder(uuid4(), "p1", "c1", "u1") for _ in range(3))
    for holder in (held, expired):
        assert await slots.acquire(holder.token, ALL, 1) == Taken()
        await redis.zadd(slots.key(POOL), {str(holder.token): await now_ms(redis) + 5_000})
    await end_lease(redis, slots, expired.token, *ALL)

    seen = await slots.look(1)
    assert isinstance(seen, int)
    assert await slots.touch(1, [held, expired, unknown], read_at=seen) == Touched(missing=6)

    score = await redis.zscore(slots.key(POOL), str(held.token))
    assert score is not None
    assert score > await now_ms(redis) + 59_000
    assert await slots.count(*ALL) == [1, 1, 1]
    assert await redis.pexpiretime(slots.key(POOL)) >= score


async def test_the_marker_is_as_fresh_as_the_reading_of_the_claims_and_never_gets_older(
    slots: Slots, redis: Redis
) -> None:
    """A toucher that was paused after reading must not make the marker outlive slots it never saw."""
    now = await now_ms(redis)
    await redis.hset(slots.marker, "touched", now - 30_000)

    assert await slots.touch(1, [], read_at=now - 20_000) == Touched(0)
    assert int(await redis.hget(slots.marker, "touched") or 0) == now - 20_000
    assert await slots.touch(1, [], read_at=now - 25_000) == Touched(0)
    assert int(await redis.hget(slots.marker, "touched") or 0) == now - 20_000
    assert await slots.touch(1, [], read_at=now + 9_999_999) == Touched(0)
    assert int(await redis.hget(slots.marker, "touched") or 0) <= await now_ms(redis)


async def test_a_rebuild_adds_and_deletes_nothing(slots: Slots, redis: Redis) -> None:
    stays, comes = uuid4(), Holder(uuid4(), "p1", "c1", "u1")
    await slots.acquire(stays, ALL, 1)

    assert await slots.rebuild(2, [comes])

    assert await slots.count(*ALL) == [2, 2, 2]
    assert await slots.renew(stays, ALL, 2) == Renewed()
    assert await slots.renew(comes.token, ALL, 2) == Renewed()
    assert await slots.acquire(uuid4(), ALL, 2) == Full(CHANNEL)
    assert await redis.pttl(slots.key(POOL)) > 59_000


@pytest.mark.parametrize("there", [2, 3])
async def test_a_rebuild_does_nothing_if_the_marker_there_is_not_older(slots: Slots, there: int) -> None:
    assert await slots.rebuild(there, [])

    assert not await slots.rebuild(2, [Holder(uuid4(), "p1", "c1", "u1")])
    assert await slots.count(POOL) == [0]
    assert isinstance(await slots.look(there), int)


async def test_key_names_stay_as_they_are(slots: Slots) -> None:
    assert slots.key(Scope(Kind.POOL, "abc")) == "slackwater:slots:pool:abc"
    assert slots.key(Scope(Kind.CHANNEL, "abc")) == "slackwater:slots:channel:abc"
    assert slots.key(Scope(Kind.USER, "abc")) == "slackwater:slots:user:abc"
    assert slots.marker == "slackwater:slots:marker"


async def test_a_task_always_counts_in_all_its_scopes_limited_or_not() -> None:
    policy = Policy(worker_concurrency=7, channels={"c1": 2}, users={"u2": 1})

    assert set(scopes(pool_uid="p1", channel="c1", user_id="u1", policy=policy)) == {
        Scope(Kind.POOL, "p1", 7),
        Scope(Kind.CHANNEL, "c1", 2),
        Scope(Kind.USER, "u1", None),
    }
    assert {(scope.kind, scope.name) for scope in scopes(pool_uid="p1", channel="", user_id="u1")} == {
        (Kind.POOL, "p1"),
        (Kind.USER, "u1"),
    }


async def test_a_server_that_forgot_the_script_is_given_it_again(slots: Slots, redis: Redis) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    await redis.script_flush()

    assert await slots.renew(token, ALL, 1) == Renewed()


async def test_at_maxmemory_nothing_is_taken_and_what_is_held_is_renewed_and_given_back(
    slots: Slots, redis: Redis
) -> None:
    token = uuid4()
    await slots.acquire(token, ALL, 1)
    await redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(SlotsUnavailable, match="maxmemory"):
            await slots.acquire(uuid4(), ALL, 1)
        assert await slots.renew(token, ALL, 1) == Renewed()
        seen = await slots.look(1)
        assert isinstance(seen, int)
        assert await slots.touch(1, [Holder(token, "p1", "c1", "u1")], read_at=seen) == Touched(0)
        assert await slots.release(token, ALL) == Released(3)
    finally:
        await redis.config_set("maxmemory", 0)


class TestUnreachable:
    @pytest.fixture
    def server(self) -> Iterator[Valkey]:
        directory = Path(tempfile.mkdtemp(prefix="swrd"))
        server = Valkey(directory)
        server.start()
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(directory)

    async def test_a_server_that_hangs_gives_no_answer_in_time_and_nothing_is_sent_twice(self, server: Valkey) -> None:
        constants = Constants(slot_timeout_seconds=0.2)
        client = redis_client(server.url, constants)
        slots = Slots(client, constants=constants)
        token = uuid4()
        await slots.rebuild(1, [])
        await slots.acquire(token, ALL, 1)
        watcher = Redis.from_url(server.url)
        calls = (await watcher.info("commandstats"))["cmdstat_evalsha"]["calls"]

        server.pause()
        started = time.monotonic()
        with pytest.raises(SlotsUnavailable):
            await slots.renew(token, ALL, 1)
        assert time.monotonic() - started < 1.0
        server.resume()

        assert await slots.count(*ALL) == [1, 1, 1]
        stats = await watcher.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] <= calls + 2  # the renewal at most once, and the count
        await client.aclose()
        await watcher.aclose()

    async def test_a_server_that_is_gone_gives_no_answer_and_one_that_restarted_is_lost(self, server: Valkey) -> None:
        client = redis_client(server.url)
        slots = Slots(client)
        await slots.rebuild(1, [])
        server.stop()
        for call in (slots.acquire(uuid4(), ALL, 1), slots.renew(uuid4(), ALL, 1), slots.look(1)):
            with pytest.raises(SlotsUnavailable):
                await call
        server.start()

        assert await slots.acquire(uuid4(), ALL, 1) == LOST
        await client.aclose()
