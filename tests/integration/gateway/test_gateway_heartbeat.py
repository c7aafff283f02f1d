"""The producer's heartbeat over HTTP: both signals move, for the owner, as long as the task goes on."""

from __future__ import annotations

from uuid import UUID, uuid4

import httpx
from redis.asyncio import Redis
from sqlalchemy import text

from slackwater.activity import Activity
from slackwater.store import Store
from tests.integration.gateway.conftest import Worker


async def updated_at(store: Store, task: str) -> object:
    async with store.transaction() as connection:
        query = text("SELECT updated_at FROM slackwater.task WHERE id = CAST(:id AS uuid)")
        return (await connection.execute(query, {"id": task})).scalar_one()


async def test_a_heartbeat_moves_both_signals(
    alice: httpx.AsyncClient, worker: Worker, store: Store, redis: Redis
) -> None:
    task = (await alice.post("/api/tasks", json={"type": "render", "payload": {}})).json()["id"]
    await worker.claim()
    before = await updated_at(store, task)
    assert (await alice.post(f"/api/tasks/{task}/heartbeat")).status_code == 204
    signals = await Activity(redis, constants=store.constants).read([UUID(task)])
    assert UUID(task) in signals.last
    assert await updated_at(store, task) > before  # type: ignore[operator]


async def test_nobody_else_s_and_no_ended_task_is_kept_alive(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, store: Store
) -> None:
    task = (await alice.post("/api/tasks", json={"type": "render", "payload": {}})).json()["id"]
    assert (await bob.post(f"/api/tasks/{task}/heartbeat")).status_code == 404
    assert (await alice.post(f"/api/tasks/{uuid4()}/heartbeat")).status_code == 404
    await alice.post(f"/api/tasks/{task}/cancel")
    ended = await alice.post(f"/api/tasks/{task}/heartbeat")
    assert (ended.status_code, ended.json()["detail"]["state"]) == (409, "cancelled")
