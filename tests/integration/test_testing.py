"""The harness for task authors, used as they use it: on the sample's tasks, and on embedded servers of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from samples.render import tasks as render_tasks
from slackwater.settings import Constants
from slackwater.store import Store
from slackwater.testing import HarnessError, TaskEnded, TaskHarness
from tests.integration.harness_tasks import RELEASE
from tests.integration.workers import Stub

MODULE = "tests.integration.harness_tasks"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    stub = Stub()
    stub.start()
    monkeypatch.setenv("RENDER_URL", stub.url)
    try:
        yield stub
    finally:
        stub.close()


@pytest.fixture
async def h(
    store: Store, redis: Redis, postgres_url: str, redis_url: str, provider: Stub
) -> AsyncIterator[TaskHarness]:
    async with TaskHarness(render_tasks, MODULE, database_url=postgres_url, redis_url=redis_url) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    made = str(uuid4())
    RELEASE[made] = asyncio.Event()
    return made


async def test_a_render_is_paid_once_although_its_worker_was_drained_and_then_lost_its_lease(
    h: TaskHarness, provider: Stub
) -> None:
    run = await h.start("render", {"seconds": 2.5, "frame": 7, "poll_seconds": 0.1})
    first = await run.submitted("frame")
    assert await run.interrupt() == "queued"
    await run.running()
    assert await run.lose_lease() == "queued"
    assert (await run.result())["frame"] == first.reference
    assert await run.epoch() == 3
    assert provider.books.charges() == {first.key: 1}
    assert [s.resolved for s in await run.submissions()] == [True]
    money = await run.money()
    assert (money.charged, money.refunded) == (money.reserved, None)


async def test_embedded_servers_are_all_that_is_needed(provider: Stub) -> None:
    async with TaskHarness("samples.render.tasks") as h:
        result = await h.run("render", {"seconds": 0.2, "poll_seconds": 0.05})
    assert result["seconds"] == 0.2


async def test_a_run_goes_on_from_the_checkpoint_it_is_given_and_from_the_one_it_left(h: TaskHarness) -> None:
    assert await h.run("h.count", {"steps": 5}, saved={"done": 3}) == {"began": 3, "done": 5}
    run = await h.start("h.count", {"steps": 1000, "pause": 0.05})
    left = await run.checkpointed(beyond={"done": 1})
    assert await run.interrupt() == "queued"
    await run.checkpointed(beyond=await run.checkpoint())
    assert left["done"] >= 2
    assert await run.epoch() == 2


async def test_an_interruption_means_what_the_type_declares(h: TaskHarness, name: str) -> None:
    run = await h.start("h.wait", {"name": name})
    await run.event("waiting")
    assert await run.interrupt() == "failed"
    with pytest.raises(TaskEnded) as ended:
        await run.result()
    assert ended.value.error_type == "WorkerInterrupted"
    assert (await run.money()).refunded is not None
    held = await h.start("h.held")
    assert await held.interrupt() == "held"
    with pytest.raises(TaskEnded, match="held"):
        await held.result()


async def test_waits_that_only_pass_time_are_skipped(h: TaskHarness) -> None:
    assert await h.run("h.flaky", {"failures": 2}) == 2
    with pytest.raises(TaskEnded) as ended:
        await h.run("h.flaky", {"failures": 99})
    assert ended.value.error_type == "RetryLater"


async def test_a_plain_function_runs_in_a_process_of_its_own(h: TaskHarness) -> None:
    assert await h.run("h.plain", {"number": 21}) == {"doubled": 42}


async def test_code_that_ignores_its_cancellation_is_named(
    store: Store, redis: Redis, postgres_url: str, redis_url: str, name: str
) -> None:
    constants = Constants(renew_seconds=0.5, cancel_grace_seconds=0.2)
    async with TaskHarness(MODULE, database_url=postgres_url, redis_url=redis_url, constants=constants) as h:
        run = await h.start("h.deaf", {"name": name})
        with pytest.raises(HarnessError, match="did not stop"):
            await run.interrupt()
        RELEASE[name].set()
        assert await run.result() is None


async def test_what_does_not_come_is_named(h: TaskHarness, name: str) -> None:
    run = await h.start("h.wait", {"name": name})
    await run.running()
    with pytest.raises(HarnessError, match=r"not within 0\.3 s: a checkpoint; the task is running"):
        await run.checkpointed(seconds=0.3)
    with pytest.raises(HarnessError, match="no task type 'nothing'"):
        await h.start("nothing")
    RELEASE[name].set()
    assert await run.result() == "released"


async def test_an_outcome_learnt_after_the_lease_was_lost_is_found_by_the_next_run(h: TaskHarness, name: str) -> None:
    run = await h.start("h.late", {"name": name})
    await run.submitted()
    assert await run.lose_lease() == "queued"
    assert await run.result() == {"url": "late"}
    assert await run.epoch() == 2
