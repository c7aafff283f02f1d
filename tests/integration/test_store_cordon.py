"""Rule 7: a cordon is final, and nothing is condemned that a claim still runs in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slackwater.claim import Identity
from slackwater.store import Store, registration, writing
from slackwater.store.registration import CordonView
from tests.integration.world import World


async def cordon(store: Store, **given: Any) -> CordonView:
    values: dict[str, Any] = {"origin": "operator", "cause": "Rollout", "deadline_seconds": None} | given
    return await registration.cordon(store, "pod1", **values)


async def test_the_first_writer_decides_cause_and_since_and_a_repeat_changes_nothing(world: World) -> None:
    await world.worker()

    first = await cordon(world.store, cause="ScaleDown", deadline_seconds=600)
    again = await cordon(world.store, cause="Rollout", deadline_seconds=700)

    assert first.cause == "ScaleDown"
    assert again == first


async def test_the_earliest_deadline_stands_and_a_shorter_one_makes_an_older_call_off_miss(world: World) -> None:
    await world.worker()
    first = await cordon(world.store, deadline_seconds=None)

    shorter = await cordon(world.store, cause="Spot", deadline_seconds=90)

    assert first.deadline is None
    assert shorter.deadline is not None
    assert not await registration.call_off(world.store, "pod1", first.sequence)
    assert await registration.call_off(world.store, "pod1", shorter.sequence)


async def test_a_call_off_opens_the_pod_again_and_a_second_one_misses_the_next_cordon(world: World) -> None:
    await world.worker()
    first = await cordon(world.store)

    assert await registration.call_off(world.store, "pod1", first.sequence)
    assert await world.try_claim(await world.task()) is not None
    second = await cordon(world.store, cause="NodeDrain")
    assert not await registration.call_off(world.store, "pod1", first.sequence)
    assert second.cause == "NodeDrain"
    assert second.sequence > first.sequence


async def test_a_workers_own_cordon_is_final_and_makes_an_operators_final(world: World) -> None:
    await world.worker()
    first = await cordon(world.store)

    final = await cordon(world.store, origin="worker", cause="Terminated")

    assert (final.origin, final.cause, final.since) == ("worker", "Rollout", first.since)
    assert not await registration.call_off(world.store, "pod1", final.sequence)
    assert (await cordon(world.store)).origin == "worker"


async def test_pods_whose_object_vanished_are_cordoned_for_good(world: World) -> None:
    await world.worker()
    await registration.vanish(world.store, ["pod1", "pod9", "pod1"])

    gone = await cordon(world.store)
    assert (gone.cause, gone.origin) == ("Gone", "worker")
    assert not await registration.call_off(world.store, "pod9", gone.sequence)


async def test_an_open_pod_is_never_condemned(world: World) -> None:
    await world.worker()

    assert not await registration.condemn(world.store, "pod1")
    assert not await registration.condemn(world.store, "never-seen")


@pytest.mark.parametrize("expired", [False, True])
async def test_a_running_claim_keeps_a_pod_from_being_condemned_even_when_it_expired(
    world: World, expired: bool
) -> None:
    await world.worker()
    claim = await world.running()
    if expired:
        await world.expire(claim)
    await cordon(world.store)

    assert not await registration.condemn(world.store, "pod1")


async def test_a_claim_of_the_pods_earlier_process_counts_too(world: World) -> None:
    await world.worker("before")
    await world.running("before")
    await world.worker("after")
    await cordon(world.store)

    assert not await registration.condemn(world.store, "pod1")


async def test_a_condemned_cordon_is_lifted_by_nobody_and_condemning_again_is_true(world: World) -> None:
    await world.worker()
    view = await cordon(world.store)

    assert await registration.condemn(world.store, "pod1")
    assert not await registration.call_off(world.store, "pod1", view.sequence)
    assert await registration.condemn(world.store, "pod1")
    assert await world.try_claim(await world.task()) is None


async def test_whoever_registers_in_a_condemned_pod_that_never_had_a_worker_is_cordoned(world: World) -> None:
    await cordon(world.store, deadline_seconds=60)
    assert await registration.condemn(world.store, "pod1")

    identity = Identity("late", "pool1", "pool1", "ns", "pod1", "pod1", "n", "r", ("default",), 1, ("t",))
    registered = await registration.register(world.store, identity)

    assert registered.cordoned
    assert registered.cause == "Rollout"
    assert registered.deadline is not None
    assert await world.try_claim(await world.task(), "late") is None


async def test_a_registration_waits_for_the_cordon_in_flight_and_learns_of_it(world: World) -> None:
    await world.worker()
    identity = Identity("late", "pool1", "pool1", "ns", "pod1", "pod1", "n", "r", ("default",), 1, ("t",))
    async with world.holding("UPDATE slackwater.cordon SET since = clock_timestamp(), origin = 'operator'"):
        registering = asyncio.create_task(registration.register(world.store, identity))
        await world.blocked()

    assert (await registering).cordoned


async def test_a_claim_made_under_a_call_off_while_condemn_waited_for_the_row_is_seen(world: World) -> None:
    """Called off, claimed and cordoned again, all while `condemn` stood in the row's queue with an old snapshot."""
    await world.worker()
    task_id = await world.task()
    await cordon(world.store)
    lift = "UPDATE slackwater.cordon SET since = NULL, origin = NULL, cause = NULL"
    async with world.holding(lift) as other:
        condemning = asyncio.create_task(registration.condemn(world.store, "pod1"))
        await world.blocked()
        await other.execute(
            "UPDATE slackwater.claim SET state = 'running', epoch = 1, token = gen_random_uuid(), worker_id = 'w1',"
            " lease_until = clock_timestamp() + interval '45 s' WHERE task_id = %(id)s",
            {"id": task_id},
        )
        await other.execute(
            "UPDATE slackwater.cordon SET since = clock_timestamp(), origin = 'operator', cause = 'Rollout'"
        )

    assert not await condemning


async def test_a_call_off_in_flight_beats_the_condemn_that_waits_for_it(world: World) -> None:
    await world.worker()
    await cordon(world.store)
    async with world.holding("UPDATE slackwater.cordon SET since = NULL, origin = NULL, cause = NULL"):
        condemning = asyncio.create_task(registration.condemn(world.store, "pod1"))
        await world.blocked()

    assert not await condemning


async def test_a_heartbeat_passes_a_locked_cordon_row_and_tells_what_it_says(world: World) -> None:
    await world.worker()
    await cordon(world.store, deadline_seconds=60)
    async with world.holding("SELECT FROM slackwater.cordon FOR UPDATE"):
        beat = await registration.heartbeat(world.store, "w1", 2)

    assert beat.cordon is not None
    assert (beat.cordon.cause, beat.admission, beat.ended) == ("Rollout", "Open", False)
    row = await world.one("SELECT running FROM slackwater.worker_heartbeat")
    assert row["running"] == 2


async def test_a_worker_that_was_declared_dead_learns_it_from_its_heartbeat(world: World) -> None:
    await world.worker()

    assert await registration.end_worker(world.store, "w1", "witnessed")
    assert not await registration.end_worker(world.store, "w1", "drained")
    assert (await registration.heartbeat(world.store, "w1", 0)).ended
    assert (await world.one("SELECT end_reason FROM slackwater.worker"))["end_reason"] == "witnessed"


async def test_an_unknown_workers_heartbeat_tells_nothing_of_a_cordon(world: World) -> None:
    beat = await registration.heartbeat(world.store, "nobody", 0)

    assert (beat.cordon, beat.admission) == (None, "")


async def test_registering_twice_after_a_lost_reply_changes_nothing(world: World) -> None:
    await world.worker()
    before = await world.everything()
    await world.worker()

    assert await world.everything() == before


async def test_registration_leaves_the_operators_pool_and_a_paused_queue_alone(world: World) -> None:
    await registration.refresh_pool(
        world.store, "pool1", name="p", namespace="n", admission="Hold", queues=["default"], replicas=3, concurrency=2
    )
    await world.sql("UPDATE slackwater.queue SET paused = true")
    await world.worker()

    row = await world.one("SELECT admission, replicas, paused FROM slackwater.pool, slackwater.queue")
    assert row == {"admission": "Hold", "replicas": 3, "paused": True}


async def test_predecessors_are_the_pods_workers_that_never_ended(world: World) -> None:
    for worker_id in ("first", "second", "ended", "me"):
        await world.worker(worker_id)
    await world.worker("elsewhere", pod="pod2")
    await registration.end_worker(world.store, "ended", "drained")

    assert await registration.predecessors(world.store, "pod1", worker_id="me") == ["first", "second"]


async def test_drain_of_a_busy_pod_ends_with_its_last_claim(world: World) -> None:
    await world.worker()
    one, two = await world.running(), await world.running()
    await cordon(world.store)

    await writing.hand_back(world.store, one, reason="x", started=False)
    assert not await registration.condemn(world.store, "pod1")
    await writing.hand_back(world.store, two, reason="x", started=False)
    assert await registration.condemn(world.store, "pod1")
