"""Rule 1: one live claim per task, made by one statement that restates everything it was decided on."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from slackwater.claim import Done
from slackwater.errors import StoreUnavailable
from slackwater.schema import GENERATION_LOCK
from slackwater.settings import Constants
from slackwater.store import claiming, recovery, registration, writing
from tests.integration.world import World, aged

LOCK_TASK = "SELECT FROM slackwater.task WHERE id = %(id)s FOR UPDATE"
"""In the way of a claim after its statement and before its commit."""


async def _raise(world: World) -> None:
    async with world.holding(f"SELECT pg_advisory_xact_lock({GENERATION_LOCK})"):
        pass


async def test_of_twenty_concurrent_claimers_exactly_one_gets_the_task(world: World) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())

    won = [task for task in await asyncio.gather(*(world.try_claim(candidate) for _ in range(20))) if task]

    assert len(won) == 1
    assert won[0].claim.epoch == 1


async def test_a_claim_starts_lease_and_activity_by_the_databases_clock_and_clears_the_old_token(world: World) -> None:
    await world.worker()
    task_id = await world.task()
    await world.sql("UPDATE slackwater.claim SET old_token = gen_random_uuid()")
    before = await world.store.now()

    claimed = await world.try_claim(task_id)

    assert claimed is not None
    row = await world.row(task_id)
    after = await world.store.now()
    assert (row["state"], row["epoch"], row["token"], row["worker_id"]) == ("running", 1, claimed.claim.token, "w1")
    assert before <= row["active_at"] <= after
    assert 45 - 2 <= (row["lease_until"] - before).total_seconds() <= 45 + (after - before).total_seconds()
    assert row["old_token"] is None
    assert row["started_at"] is not None
    assert claimed.payload == {"seconds": 3}
    assert await world.events(task_id) == [(1, "started")]


REFUSALS = {
    "the queue is paused": "UPDATE slackwater.queue SET paused = true",
    "the pool is on hold": "UPDATE slackwater.pool SET admission = 'Hold'",
    "the pool is closed": "UPDATE slackwater.pool SET admission = 'Closed'",
    "the pod is cordoned": "UPDATE slackwater.cordon SET since = clock_timestamp(), origin = 'operator'",
    "the worker has ended": "UPDATE slackwater.worker SET ended_at = clock_timestamp()",
    "the task is not claimable yet": "UPDATE slackwater.claim SET claimable_from = clock_timestamp() + interval '1 s'",
    "the task is held": "UPDATE slackwater.claim SET state = 'held'",
    "the task was claimed in between and came back": "UPDATE slackwater.claim SET epoch = epoch + 1",
    "the generation was raised": "UPDATE slackwater.slot_generation SET generation = generation + 1",
    "the database fails over": "UPDATE slackwater.timeline SET name = 'FFFFFFFF'",
    "the database failed over a moment ago": "UPDATE slackwater.timeline SET changed_at = clock_timestamp()",
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_no_claim_when_between_candidate_and_claim(world: World, what: str) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())
    await world.sql(REFUSALS[what])
    before = await world.everything()

    assert await world.try_claim(candidate, generation=0) is None
    assert await world.everything() == before


@pytest.mark.parametrize(("age", "claimed"), [(29.0, True), (30.5, False), (-1.0, False)])
async def test_a_claim_comes_within_30_seconds_of_reading_its_candidate(
    world: World, age: float, claimed: bool
) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())

    assert (await world.try_claim(aged(candidate, age)) is not None) is claimed


async def test_the_candidates_age_is_judged_after_the_wait_for_the_pods_row(world: World) -> None:
    await world.worker()
    candidate = aged(await world.candidate(await world.task()), 29.5)
    async with world.holding("SELECT FROM slackwater.cordon WHERE pod_uid = 'pod1' FOR UPDATE"):
        claiming_ = asyncio.create_task(world.try_claim(candidate))
        await world.blocked()
        await world.sql("SELECT pg_sleep(0.6)")

    assert await claiming_ is None


async def test_a_claim_does_not_move_the_producers_signal(world: World) -> None:
    """What a silent producer's task is judged by, else being run again and again would keep it alive."""
    await world.worker()
    task_id = await world.task()
    before = await world.row(task_id)

    assert await world.try_claim(task_id) is not None

    assert (await world.row(task_id))["updated_at"] == before["updated_at"]


async def test_a_worker_that_never_registered_claims_nothing(world: World) -> None:
    await world.worker()

    assert await world.try_claim(await world.task(), "somebody") is None


async def test_another_pods_cordon_is_no_hindrance(world: World) -> None:
    await world.worker()
    await registration.cordon(world.store, "pod2", origin="operator", cause="Rollout", deadline_seconds=None)

    assert await world.try_claim(await world.task()) is not None


async def test_a_cordon_in_flight_holds_the_claim_up_and_then_refuses_it(world: World) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())
    async with world.holding("UPDATE slackwater.cordon SET since = clock_timestamp(), origin = 'worker'"):
        claiming_ = asyncio.create_task(world.try_claim(candidate))
        await world.blocked()

    assert await claiming_ is None


async def test_a_claim_in_flight_holds_the_cordon_up_and_is_counted_afterwards(world: World) -> None:
    await world.worker()
    task_id = await world.task()
    async with world.holding(LOCK_TASK, id=task_id):
        claiming_ = asyncio.create_task(world.try_claim(task_id))
        await world.blocked()
        cordoning = asyncio.create_task(
            registration.cordon(world.store, "pod1", origin="operator", cause="Rollout", deadline_seconds=None)
        )
        await world.blocked(2)
        assert not cordoning.done()

    assert (await cordoning).cordoned
    claimed = await claiming_
    assert claimed is not None
    assert not await registration.condemn(world.store, "pod1")
    await writing.finish(world.store, claimed.claim, Done(None))
    assert await registration.condemn(world.store, "pod1")


async def test_a_claim_that_waited_for_a_raise_sees_the_new_generation(world: World) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())
    async with world.holding(f"SELECT pg_advisory_xact_lock({GENERATION_LOCK})") as other:
        claiming_ = asyncio.create_task(world.try_claim(candidate, generation=0))
        await world.blocked()
        await other.execute("UPDATE slackwater.slot_generation SET generation = generation + 1")

    assert await claiming_ is None


async def test_a_raise_waits_for_the_claim_in_flight(world: World) -> None:
    await world.worker()
    task_id = await world.task()
    async with world.holding(LOCK_TASK, id=task_id):
        claiming_ = asyncio.create_task(world.try_claim(task_id))
        await world.blocked()
        raising = asyncio.create_task(_raise(world))
        await world.blocked(2)
        assert not raising.done()

    await raising
    assert await claiming_ is not None


async def test_a_claim_in_flight_is_found_by_its_token(world: World) -> None:
    await world.worker()
    task_id, token = await world.task(), uuid4()
    candidate = await world.candidate(task_id)
    async with world.holding(LOCK_TASK, id=task_id):
        claiming_ = asyncio.create_task(world.try_claim(candidate, token=token))
        await world.blocked()
        looking = asyncio.create_task(claiming.find_token(world.store, candidate, token))
        await world.blocked(2)
        assert not looking.done()

    found = await looking
    assert found.task is not None
    assert found.task == await claiming_


@pytest.mark.parametrize(("age", "over"), [(31.0, False), (34.5, False), (35.5, True), (-1.0, True)])
async def test_a_token_is_given_up_only_when_no_claim_can_come_any_more(world: World, age: float, over: bool) -> None:
    candidate = aged(await world.candidate(await world.task()), age)

    found = await claiming.find_token(world.store, candidate, uuid4())

    assert found == claiming.Found(None, over)


async def test_another_executions_claim_is_not_ours(world: World) -> None:
    await world.worker()
    candidate = await world.candidate(await world.task())
    await world.try_claim(candidate)

    assert (await claiming.find_token(world.store, candidate, uuid4())).task is None


async def test_candidates_come_in_fair_order_over_all_queues_and_leave_out_what_cannot_be_claimed(
    world: World,
) -> None:
    second = await world.task(order=2.0)
    first = await world.task(queue="other", order=1.0)
    third = await world.task(order=3.0, channel="free")
    await world.task(order=0.1, channel="full")
    await world.task(order=0.2, queue="not-ours")
    await world.task(order=0.3, kind="unknown-type")
    await world.task(order=0.4, queue="paused")
    later = await world.task(order=0.5)
    await world.sql("UPDATE slackwater.queue SET paused = true WHERE name = 'paused'")
    await world.sql(
        "UPDATE slackwater.claim SET claimable_from = clock_timestamp() + interval '9 s' WHERE task_id = %(id)s",
        id=later,
    )

    found = await claiming.candidates(
        world.store, queues=["default", "other", "paused"], types=["t"], limit=10, skip_channels=["full"]
    )
    two = await claiming.candidates(
        world.store, queues=["default", "other"], types=["t"], limit=1, skip_channels=["full"]
    )

    assert [candidate.task_id for candidate in found] == [first, second, third]
    assert [candidate.task_id for candidate in two] == [first]


class TestImpatient:
    @pytest.fixture
    def constants(self) -> Constants:
        return Constants(lock_timeout_seconds=0.05)

    async def test_a_claim_that_waits_too_long_gives_no_answer_and_leaves_nothing(self, world: World) -> None:
        await world.worker()
        candidate = await world.candidate(await world.task())
        before = await world.everything()
        async with world.holding("SELECT FROM slackwater.cordon FOR UPDATE"):
            with pytest.raises(StoreUnavailable):
                await world.try_claim(candidate)

        assert await world.everything() == before
        assert await recovery.running_claims(world.store) == []
