"""Real worker processes: claim, run, renew, end. The provider's log judges."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from slackwater.settings import Constants
from slackwater.store import Store
from tests.integration.workers import SCALED, Bench, Stub


@pytest.fixture
def constants() -> Constants:
    return SCALED


@pytest.fixture
async def bench(
    store: Store, redis: Redis, postgres_url: str, redis_url: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    stub = Stub()
    stub.start()
    environment = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "RENDER_URL": stub.url}
    bench = Bench(store, environment, stub, tmp_path)
    try:
        yield bench
    finally:
        await bench.close()
        stub.close()


async def test_a_render_is_paid_once_and_its_worker_leaves_with_zero_when_told(bench: Bench) -> None:
    task = await bench.submit("render", seconds=0.4, poll_seconds=0.1)
    worker = await bench.worker()
    row = await bench.state(task, "done")
    assert (row.attempts, row.epoch) == (1, 1)
    assert row.result["seconds"] == 0.4
    assert [call["charged"] for call in bench.stub.calls("submit", task)] == [True]
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 0
