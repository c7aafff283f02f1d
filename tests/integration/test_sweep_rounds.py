"""Sweeps: one process runs a due round, each task by its own premise, and nothing is freed on an unwatched clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from slackwater.activity import Activity, producer_active
from slackwater.claim import Claim
from slackwater.errors import SlotsUnavailable
from slackwater.policy import Policy
from slackwater.redis_client import redis_client
from slackwater.slots import Slots, Taken, scopes
from slackwater.store import generation, recovery, registration, submissions
from slackwater.store.generation import Restored
from slackwater.store.policies import write_policy
from slackwater.sweep import SweepKind, run_due
from tests.integration.world import World

EXPIRED, TOUCH, STALE, ORPHANS = [SweepKind.EXPIRED], [SweepKind.TOUCH], [SweepKind.STALE], [SweepKind.ORPHANS]
HELD = scopes(pool_uid="pool1", channel="", user_id="u1", policy=Policy(worker_concurrency=100))


@pytest.fixture
async def slots(redis: Redis, redis_url: str, world: World) -> AsyncIterator[Slots]:
    client = redis_client(redis_url)
    made = Slots(client)
    await generation.restore(world.store, made)
    yield made
    await client.aclose()


async def last(world: World, kind: str, seconds_ago: float) -> None:
    await world.sql(
        "UPDATE slackwater.sweep SET last = clock_timestamp() - make_interval(secs => %(ago)s) WHERE kind = %(kind)s",
        ago=seconds_ago,
        kind=kind,
    )


async def run_with_slot(world: World, slots: Slots, **wanted: Any) -> Claim:
    token = uuid4()
    assert await slots.acquire(token, HELD, 1) == Taken()
    claimed = await world.try_claim(await world.task(**wanted), token=token, generation=1)
    assert claimed is not None
    return claimed.claim


async def ago(world: World, column: str, seconds: float, task_id: UUID, table: str = "claim") -> None:
    key = "task_id" if table == "claim" else "id"
    await world.sql(
        f"UPDATE slackwater.{table} SET {column} = clock_timestamp() - make_interval(secs => %(ago)s)"
        f" WHERE {key} = %(id)s",
        ago=seconds,
        id=task_id,
    )


async def test_of_ten_processes_one_runs_the_round(world: World, slots: Slots) -> None:
    reports = await asyncio.gather(*(run_due(world.store, slots) for _ in range(10)))

    ran = [kind for report in reports for kind in report.ran]
    assert sorted(ran) == sorted(SweepKind)
    assert [report.errors for report in reports] == [[]] * 10


async def test_a_round_comes_again_after_its_interval(world: World, slots: Slots) -> None:
    assert (await run_due(world.store, slots, kinds=EXPIRED)).ran == EXPIRED
    await last(world, "expired", 4.5)
    assert (await run_due(world.store, slots, kinds=EXPIRED)).ran == []
    await last(world, "expired", 5.5)
    assert (await run_due(world.store, slots, kinds=EXPIRED)).ran == EXPIRED


async def test_expired_tasks_and_their_slots_are_repaired_together_and_live_ones_left_alone(
    world: World, slots: Slots
) -> None:
    await world.worker()
    lost, live = await run_with_slot(world, slots), await run_with_slot(world, slots)
    await world.expire(lost)

    report = await run_due(world.store, slots, kinds=EXPIRED)

    assert (report.expired, report.slots_released, report.errors) == (1, 1, [])
    assert (await world.row(lost.task_id))["state"] == "queued"
    assert (await world.row(live.task_id))["state"] == "running"
    assert await slots.count(*HELD) == [1, 1]
    assert await world.counter("orphaned_slots_released") == 1


@pytest.mark.parametrize(("gap", "quiet"), [(14.0, False), (16.0, True), (-5.0, True)])
async def test_after_a_gap_nothing_is_freed_without_a_witness(
    world: World, slots: Slots, gap: float, quiet: bool
) -> None:
    await world.worker()
    claim = await run_with_slot(world, slots)
    await world.expire(claim)
    await last(world, "expired", gap)

    report = await run_due(world.store, slots, kinds=EXPIRED)

    assert (report.ran, report.quiet, report.expired) == (EXPIRED, quiet, 0 if quiet else 1)
    if quiet:
        await last(world, "expired", 6)
        assert (await run_due(world.store, slots, kinds=EXPIRED)).quiet
        assert await recovery.witness(world.store, "w1", slots=slots) == 1
        assert await slots.count(*HELD) == [0, 0]
        await world.sql("UPDATE slackwater.sweep SET quiet_until = clock_timestamp() - interval '1 ms'")
        await last(world, "expired", 6)
        assert not (await run_due(world.store, slots, kinds=EXPIRED)).quiet


async def test_the_first_round_ever_is_no_gap(world: World, slots: Slots) -> None:
    assert not (await run_due(world.store, slots, kinds=EXPIRED)).quiet


async def test_a_fault_with_one_task_keeps_no_other_from_being_swept(world: World, slots: Slots) -> None:
    await world.worker()
    claims = [await run_with_slot(world, slots) for _ in range(3)]
    for claim in claims:
        await world.expire(claim)
    broken = claims[0].task_id
    await world.sql(
        "INSERT INTO slackwater.task_type (name, declaration) VALUES ('broken', '{\"on_interrupt\": \"nonsense\"}')"
    )
    await world.sql("UPDATE slackwater.claim SET type = 'broken' WHERE task_id = %(id)s", id=broken)

    report = await run_due(world.store, slots, kinds=EXPIRED)

    assert report.expired == 2
    assert len(report.errors) == 1
    assert (await world.row(broken))["state"] == "running"


async def test_three_orphans_stuck_for_ten_hours_are_recovered_in_one_sweep(world: World, slots: Slots) -> None:
    """R-TEST-14."""
    await world.worker(declarations={"t": {"on_interrupt": "fail"}})
    claims = [await run_with_slot(world, slots) for _ in range(3)]
    await world.sql("UPDATE slackwater.claim SET lease_until = clock_timestamp() - interval '10 hours'")

    report = await run_due(world.store, slots, kinds=EXPIRED)

    assert report.expired == 3
    for claim in claims:
        row = await world.row(claim.task_id)
        assert (row["state"], row["error_info"]["error_type"], row["refunded"]) == ("failed", "WorkerInterrupted", 5)
        assert row["finished_at"] is not None


async def test_the_touch_round_restores_lost_slots(world: World, slots: Slots, redis: Redis) -> None:
    await world.worker()
    await run_with_slot(world, slots)
    assert (await run_due(world.store, slots, kinds=TOUCH)).restored is None
    await redis.flushall()
    await world.sql("UPDATE slackwater.slot_generation SET raised_at = raised_at - interval '15 s'")
    await last(world, "touch", 16)

    report = await run_due(world.store, slots, kinds=TOUCH)

    assert report.restored is Restored.REBUILT
    assert await slots.count(*HELD) == [1, 1]


async def test_another_timeline_stops_claims_for_one_lease(world: World, slots: Slots) -> None:
    await world.worker()
    await world.sql("UPDATE slackwater.timeline SET name = '00000000'")
    assert await world.try_claim(await world.task()) is None

    await run_due(world.store, slots, kinds=EXPIRED)

    assert (await world.one("SELECT name FROM slackwater.timeline"))["name"] == await world.store.timeline()
    assert await world.try_claim(await world.task()) is None
    await world.sql("UPDATE slackwater.timeline SET changed_at = changed_at - interval '45 s'")
    assert await world.try_claim(await world.task()) is not None


# ---- stale (rule 10)

FED = {"t": {"on_interrupt": "fail", "fed": True}}


async def test_a_hung_task_with_healthy_renewal_is_finalised_and_one_with_evidence_is_not(
    world: World, slots: Slots
) -> None:
    """R-TEST-12, 15, 31: 25 minutes without a sign against 5 minutes."""
    await world.worker()
    hung, busy = await run_with_slot(world, slots), await run_with_slot(world, slots)
    await ago(world, "active_at", 25 * 60, hung.task_id)
    await ago(world, "active_at", 5 * 60, busy.task_id)

    report = await run_due(world.store, slots, kinds=STALE)

    assert report.stale == 1
    row = await world.row(hung.task_id)
    assert (row["state"], row["error_info"]["error_type"]) == ("failed", "WorkerInterrupted")
    assert (await world.row(busy.task_id))["state"] == "running"
    # Its lease was live: the slot stays till it ends, and is not given back by the sweep.
    assert await slots.count(*HELD) == [2, 2]
    assert row["old_token"] == hung.token


@pytest.mark.parametrize(
    ("declared", "idle", "finalised"),
    [
        ({"stale_seconds": 60}, 61, True),
        ({"stale_seconds": 60}, 55, False),
        ({"hard_timeout_seconds": 3600}, 3000, False),
        ({"hard_timeout_seconds": 3600}, 3700, True),
        ({}, 1190, False),
        ({}, 1210, True),
        ({"fed": True}, 1790, False),
        ({"fed": True}, 1810, True),
    ],
)
async def test_the_limit_is_the_types_own(
    world: World, slots: Slots, declared: dict[str, Any], idle: float, finalised: bool
) -> None:
    await world.worker(declarations={"t": declared})
    claim = await run_with_slot(world, slots)
    await ago(world, "active_at", idle, claim.task_id)
    await ago(world, "updated_at", idle, claim.task_id, "task")

    assert (await run_due(world.store, slots, kinds=STALE)).stale == int(finalised)


@pytest.mark.parametrize(
    ("heartbeat", "updated", "finalised"),
    [
        (60, 9999, False),  # fresh heartbeat with an old updated_at: kept
        (9999, 60, True),  # old heartbeat with a fresh updated_at: finalised
        (None, 9999, True),  # no entry: updated_at decides
        (None, 60, False),
    ],
)
async def test_the_producers_heartbeat_judges_and_updated_at_only_stands_in(
    world: World, slots: Slots, redis: Redis, heartbeat: float | None, updated: float, finalised: bool
) -> None:
    """R-TEST-22. The execution's own activity is fresh all along."""
    await world.worker(declarations=FED)
    claim = await run_with_slot(world, slots)
    await ago(world, "updated_at", updated, claim.task_id, "task")
    if heartbeat is not None:
        await Activity(redis).note(claim.task_id, limit_seconds=1800)
        key = f"slackwater:activity:{claim.task_id}"
        await redis.set(key, int(int(await redis.get(key) or 0) - heartbeat * 1000))

    assert (await run_due(world.store, slots, kinds=STALE)).stale == int(finalised)


@pytest.mark.parametrize(("updated", "finalised"), [(9999, True), (60, False)])
async def test_with_redis_out_of_reach_updated_at_decides(
    world: World, slots: Slots, updated: float, finalised: bool
) -> None:
    class Unreachable(Activity):
        async def read(self, task_ids: Any) -> Any:
            raise SlotsUnavailable("gone")

    await world.worker(declarations=FED)
    claim = await run_with_slot(world, slots)
    await ago(world, "updated_at", updated, claim.task_id, "task")

    report = await run_due(world.store, slots, kinds=STALE, activity=Unreachable(slots.redis))

    assert report.stale == int(finalised)


async def test_producer_activity_moves_both_marks_and_outlives_the_limit(world: World, redis: Redis) -> None:
    await world.worker(declarations=FED)
    claim = await world.running()
    await ago(world, "updated_at", 9999, claim.task_id, "task")
    before = await world.row(claim.task_id)

    assert await producer_active(world.store, Activity(redis), claim.task_id, limit_seconds=1800)

    after = await world.row(claim.task_id)
    assert (after["now"] - after["updated_at"]).total_seconds() < 5
    assert (after["active_at"], after["lease_until"]) == (before["active_at"], before["lease_until"])
    assert await redis.pttl(f"slackwater:activity:{claim.task_id}") > 1800 * 1000
    assert not await producer_active(world.store, Activity(redis), uuid4(), limit_seconds=1800)
    await world.sql("UPDATE slackwater.task SET finished_at = clock_timestamp()")
    assert not await producer_active(world.store, Activity(redis), claim.task_id, limit_seconds=1800)


async def test_a_fed_tasks_reruns_do_not_lengthen_its_life(world: World, slots: Slots, redis: Redis) -> None:
    """R-TEST-21: the producer is silent, runs come and go, the task ends all the same."""
    await world.worker(declarations={"t": {"on_interrupt": "requeue", "fed": True}})
    task_id = await world.task()
    await Activity(redis).note(task_id, limit_seconds=1800)
    key = f"slackwater:activity:{task_id}"
    silent = int(await redis.get(key) or 0) - 1_700_000
    await redis.set(key, silent)
    await ago(world, "updated_at", 1700, task_id, "task")
    for _ in range(2):
        claimed = await world.try_claim(task_id, generation=1)
        assert claimed is not None
        await world.expire(claimed.claim)
        await last(world, "expired", 6)
        await last(world, "stale", 31)
        assert (await run_due(world.store, slots, kinds=STALE)).stale == 0
        await run_due(world.store, slots, kinds=EXPIRED)
    claimed = await world.try_claim(task_id, generation=1)
    assert claimed is not None
    assert int(await redis.get(key) or 0) == silent
    await redis.set(key, silent - 200_000)
    await last(world, "stale", 31)

    assert (await run_due(world.store, slots, kinds=STALE)).stale == 1


# ---- pending too long


async def waited(world: World, task_id: UUID, seconds: float) -> None:
    await ago(world, "pending_since", seconds, task_id, "task")
    await ago(world, "claimable_from", seconds, task_id)
    await world.sql("UPDATE slackwater.queue SET served_since = clock_timestamp() - interval '1 day'")


@pytest.fixture
async def limit_900(world: World) -> None:
    """A queue so short that 15 minutes are the longer limit."""
    await write_policy(world.store, Policy(system_pending_limit=8), who="test")


@pytest.mark.usefixtures("limit_900")
async def test_a_task_pending_for_15_minutes_is_ended_and_one_of_3_minutes_is_not(world: World, slots: Slots) -> None:
    """R-TEST-13, 15."""
    await world.worker()
    old, young = await world.task(), await world.task()
    await waited(world, young, 180)
    await waited(world, old, 901)

    report = await run_due(world.store, slots, kinds=ORPHANS)

    assert (report.timed_out, report.errors) == (1, [])
    row = await world.row(old)
    assert (row["state"], row["error_info"]["error_type"], row["refunded"]) == ("failed", "PendingTimeout", 5)
    assert row["finished_at"] is not None
    assert (await world.row(young))["state"] == "queued"


@pytest.mark.usefixtures("limit_900")
async def test_a_pending_task_with_an_open_submission_becomes_unknown(world: World, slots: Slots) -> None:
    await world.worker()
    claim = await run_with_slot(world, slots)
    await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    await world.expire(claim)
    await run_due(world.store, slots, kinds=EXPIRED)
    await waited(world, claim.task_id, 901)

    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 1
    row = await world.row(claim.task_id)
    assert (row["state"], row["refunded"]) == ("unknown", None)


UNSERVED = {
    "paused": "UPDATE slackwater.queue SET paused = true",
    "on hold": "UPDATE slackwater.pool SET admission = 'Hold'",
    "without a live worker": "UPDATE slackwater.worker_heartbeat SET seen_at = clock_timestamp() - interval '46 s'",
    "without a worker": "UPDATE slackwater.worker SET ended_at = clock_timestamp()",
    "served by cordoned pods only": "UPDATE slackwater.cordon SET since = clock_timestamp()",
    "without a free slot": "UPDATE slackwater.policy SET document = document || '{\"worker_concurrency\": 0}'",
}


@pytest.mark.usefixtures("limit_900")
@pytest.mark.parametrize("what", UNSERVED)
async def test_waiting_does_not_count_while_the_queue_is(world: World, slots: Slots, what: str) -> None:
    await world.worker()
    task_id = await world.task()
    await waited(world, task_id, 5000)
    await world.sql(UNSERVED[what])

    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 0
    assert (await world.row(task_id))["state"] == "queued"


async def test_the_default_limit_is_at_least_twice_the_time_of_a_full_queue(world: World, slots: Slots) -> None:
    await world.worker()
    task_id = await world.task()
    await waited(world, task_id, 1190)  # 2 x 20 / 4 x 120 s
    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 0
    await waited(world, task_id, 1210)
    await last(world, "orphans", 301)
    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 1


async def test_a_type_may_declare_a_longer_wait(world: World, slots: Slots) -> None:
    await world.worker(declarations={"t": {"pending_seconds": 7200}})
    task_id = await world.task()
    await waited(world, task_id, 7000)
    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 0
    await waited(world, task_id, 7300)
    await last(world, "orphans", 301)
    assert (await run_due(world.store, slots, kinds=ORPHANS)).timed_out == 1


@pytest.mark.usefixtures("limit_900")
async def test_a_task_claimed_at_the_last_moment_is_not_timed_out(world: World, slots: Slots) -> None:
    await world.worker()
    task_id = await world.task()
    await waited(world, task_id, 901)
    mine = "UPDATE slackwater.claim SET state = 'running', token = gen_random_uuid(), epoch = 1 WHERE task_id = %(id)s"
    async with world.holding(mine, id=task_id):
        sweeping = asyncio.create_task(run_due(world.store, slots, kinds=ORPHANS))
        await world.blocked()

    report = await sweeping
    assert (report.timed_out, report.errors) == (0, [])


async def test_a_pod_is_serving_again_after_its_drain_was_called_off(world: World, slots: Slots) -> None:
    await world.worker()
    view = await registration.cordon(world.store, "pod1", origin="operator", cause="Rollout", deadline_seconds=None)
    await world.sql("UPDATE slackwater.queue SET served_since = clock_timestamp() - interval '1 day'")
    await run_due(world.store, slots, kinds=ORPHANS)
    unserved = await world.one("SELECT served_since FROM slackwater.queue")
    await registration.call_off(world.store, "pod1", view.sequence)
    await last(world, "orphans", 301)
    await run_due(world.store, slots, kinds=ORPHANS)

    assert await world.one("SELECT served_since FROM slackwater.queue") == unserved
