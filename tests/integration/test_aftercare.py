"""What follows an end: a provider asked to stop, effects undone, and what is charged. Through the harness, on real
servers, with the hooks of `harness_tasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from slackwater import aftercare
from slackwater.slots import Slots
from slackwater.store import Store
from slackwater.store import aftercare as care
from slackwater.store.admin import cancel
from slackwater.sweep import SweepKind, run_due
from slackwater.testing import TaskHarness
from tests.integration.harness_tasks import CARED, OUTCOMES, RELEASE
from tests.integration.world import World

MODULE = "tests.integration.harness_tasks"


@pytest.fixture
async def h(store: Store, redis: Redis, postgres_url: str, redis_url: str) -> AsyncIterator[TaskHarness]:
    CARED.clear()
    OUTCOMES.clear()
    async with TaskHarness(MODULE, database_url=postgres_url, redis_url=redis_url) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    made = str(uuid4())
    RELEASE[made] = asyncio.Event()
    return made


async def test_a_cancel_asks_the_provider_to_stop_and_the_task_is_cancelled_when_it_did(
    h: TaskHarness, name: str
) -> None:
    run = await h.start("h.cared", {"name": name, "ask": True})
    asked = await run.submitted()
    await run.event("waiting")
    OUTCOMES.append({"stopped": True})
    assert await run.cancel() == "unknown"
    await run.event("cancelled")
    assert ("stop", run.id, asked.key, asked.reference) in CARED
    assert [s.outcome for s in await run.submissions()] == [{"stopped": True}]
    money = await run.money()
    assert (money.charged, money.refunded) == (money.reserved, None), "what was submitted is charged"


async def test_a_provider_that_does_not_know_yet_is_asked_again(
    h: TaskHarness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aftercare, "FIRST_WAIT_SECONDS", 0.01)
    run = await h.start("h.free", {"name": name, "ask": True})
    await run.event("waiting")
    OUTCOMES.extend([None, RuntimeError("no connection"), {"stopped": True}])
    assert await run.cancel() == "unknown"
    (standing,) = await run.cared_for()
    assert (standing.state, standing.tries, len(CARED)) == ("done", 3, 3)
    assert await run.state() == "cancelled"
    money = await run.money()
    assert (money.charged, money.refunded) == (None, money.reserved), "the type charges nothing for a cancelled task"


async def test_a_hook_that_fails_too_often_is_given_up_until_an_administrator_says_so(
    h: TaskHarness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aftercare, "TRIES", 2)
    monkeypatch.setattr(aftercare, "FIRST_WAIT_SECONDS", 0.01)
    run = await h.start("h.free", {"name": name, "ask": True})
    await run.event("waiting")
    OUTCOMES.extend([RuntimeError("one"), RuntimeError("two")])
    await run.cancel()
    (dead,) = await run.cared_for()
    assert (dead.state, dead.last_error) == ("dead", "RuntimeError: two")
    assert await care.backlog(h.store) == (0, 1)
    assert await run.state() == "unknown"
    OUTCOMES.append({"stopped": True})
    assert await care.again(h.store, run.id, who="root") == 1
    await run.event("cancelled")


async def test_a_task_that_had_begun_and_failed_is_compensated_once(h: TaskHarness, name: str) -> None:
    run = await h.start("h.cared", {"name": name, "fail": True})
    await run.event("failed")
    (standing,) = await run.cared_for()
    assert (standing.kind, standing.state) == ("compensate", "done")
    assert list(CARED) == [("undo", run.id, "failed", 0)]


async def test_a_task_that_did_not_begin_or_is_done_needs_no_care(h: TaskHarness, name: str) -> None:
    RELEASE[name].set()
    done = await h.start("h.cared", {"name": name})
    await done.result()
    with h.claiming_paused():
        waiting = await h.start("h.cared", {"name": name})
        assert await cancel(h.store, waiting.id, who="author") == "cancelled"
    assert await care.standing(h.store, done.id) == []
    assert await care.standing(h.store, waiting.id) == []


async def test_everything_is_charged_if_the_type_says_so_and_it_had_begun(h: TaskHarness, name: str) -> None:
    run = await h.start("h.dear", {"name": name})
    await run.event("waiting")
    assert await run.cancel() == "cancelled"
    assert (await run.money()).charged is not None
    with h.claiming_paused():
        waiting = await h.start("h.dear", {"name": name})
        await cancel(h.store, waiting.id, who="author")
    assert (await waiting.money()).refunded is not None


async def test_a_lost_lease_may_mean_something_else_than_an_orderly_interruption(h: TaskHarness, name: str) -> None:
    run = await h.start("h.lost", {"name": name})
    await run.event("waiting")
    assert await run.lose_lease() == "queued"
    await run.running()
    assert await run.interrupt() == "failed"


async def test_a_task_past_its_hard_timeout_is_ended_although_it_shows_activity(world: World, redis: Redis) -> None:
    declared = {"t": {"on_interrupt": "requeue", "hard_timeout_seconds": 60, "stale_seconds": 7200}}
    await world.worker(declarations=declared)
    claim, other = await world.running(), await world.running()
    limit = 60 + world.store.constants.cancel_grace_seconds + world.store.constants.lease_seconds
    for one, age in ((claim, limit + 1), (other, limit - 5)):
        await world.sql(
            "UPDATE slackwater.claim SET claimed_at = clock_timestamp() - make_interval(secs => %(age)s)"
            " WHERE task_id = %(id)s",
            id=one.task_id,
            age=age,
        )
    slots = Slots(redis, prefix="test", constants=world.store.constants)
    report = await run_due(world.store, slots, kinds=[SweepKind.STALE])
    assert (report.overrun, report.stale, report.errors) == (1, 0, [])
    row = await world.row(claim.task_id)
    assert (row["state"], row["error_info"]["error_type"]) == ("failed", "HardTimeout")
    assert (await world.row(other.task_id))["state"] == "running"
