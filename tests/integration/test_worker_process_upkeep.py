"""Worker processes beside their tasks: they deliver to webhooks if told to, and run the hooks of ended tasks."""

from __future__ import annotations

import asyncio

from slackwater.store import webhooks
from slackwater.store.admin import cancel
from tests.integration.receiver import Receiver
from tests.integration.workers import Bench, constants, until, with_bench

__all__ = ["constants", "with_bench"]


async def test_a_worker_that_is_told_to_delivers_what_happens(bench: Bench) -> None:
    receiver = Receiver()
    await webhooks.put(bench.store, "shop", receiver.url, private=True, who="root")
    await bench.worker(deliver="true")
    task = await bench.submit("nap", seconds=0)

    async def told() -> bool:
        return [got.document["kind"] for got in receiver.got] == ["queued", "done"]

    await until("both events have arrived", told)
    assert {got.document["task"] for got in receiver.got} == {str(task)}
    receiver.close()


async def test_a_cancelled_task_s_provider_is_stopped_by_a_worker_process(bench: Bench) -> None:
    worker = await bench.worker()
    task = await bench.submit("stoppable")
    await bench.stub.called("submit", task)
    await worker.line("started", type="stoppable")
    await asyncio.sleep(0)
    assert await cancel(bench.store, task, who="alice") == "unknown"
    await bench.state(task, "cancelled")
    (stopped,) = bench.stub.calls("stop", task)
    assert stopped["key"]
