"""Adopting and late results over HTTP."""

from __future__ import annotations

from uuid import uuid4

import httpx

from slackwater.claim import ClaimedTask
from slackwater.store import Store, submissions
from tests.integration.gateway.conftest import Worker


async def unknown(alice: httpx.AsyncClient, worker: Worker, store: Store) -> tuple[ClaimedTask, str]:
    await alice.post("/api/tasks", json={"type": "render", "payload": {}})
    claimed = await worker.claim()
    made = await submissions.intend(store, claimed.claim, "frame", "stub", {})
    cancelled = await alice.post(f"/api/tasks/{claimed.claim.task_id}/cancel")
    assert cancelled.json()["state"] == "unknown"
    return claimed, made.key


async def test_an_administrator_adopts_an_unknown_task(
    admin: httpx.AsyncClient, alice: httpx.AsyncClient, worker: Worker, store: Store
) -> None:
    claimed, key = await unknown(alice, worker, store)
    path = f"/api/admin/tasks/{claimed.claim.task_id}/adopt"
    assert "slackwater_unknown_tasks 1.0" in (await admin.get("/metrics")).text
    assert (await alice.post(path, json={"result": 1})).status_code == 403
    assert (await admin.post(path)).json()["detail"]["field"] == "result"
    late = await admin.post(f"/api/admin/submissions/{key}/outcome", json={"outcome": {"url": "late"}})
    assert late.json()["outcome"] == {"url": "late"}
    adopted = await admin.post(path, json={"reason": "seen"})
    assert adopted.json()["state"] == "done"
    again = await admin.post(path, json={"result": 2})
    assert (again.status_code, again.json()["detail"]["state"]) == (409, "done")
    assert (await alice.get(f"/api/tasks/{claimed.claim.task_id}")).json()["result"] == {"url": "late"}
    assert "slackwater_unknown_tasks 0.0" in (await admin.get("/metrics")).text


async def test_what_is_wrong_is_named(admin: httpx.AsyncClient) -> None:
    assert (await admin.post(f"/api/admin/tasks/{uuid4()}/adopt", json={"result": 1})).status_code == 404
    assert (await admin.post(f"/api/admin/tasks/{uuid4()}/adopt", json={"state": "done"})).status_code == 422
    assert (await admin.post("/api/admin/submissions/none/outcome", json={"outcome": 1})).status_code == 404
    assert (await admin.post("/api/admin/submissions/none/outcome", json={})).status_code == 422
