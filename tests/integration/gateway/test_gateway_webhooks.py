"""Webhooks and deliveries over HTTP: administrators only, secrets once, everything else named by its field."""

from __future__ import annotations

import httpx
import pytest

from slackwater.store import Store, outbox


async def test_a_webhook_is_made_changed_rotated_and_removed(admin: httpx.AsyncClient) -> None:
    made = await admin.put("/api/admin/webhooks/shop", json={"url": "https://example.com/in", "kinds": ["done"]})
    assert made.status_code == 201
    secret = made.json()["secret"]
    changed = await admin.put("/api/admin/webhooks/shop", json={"url": "https://example.com/new"})
    assert (changed.status_code, changed.json()) == (200, {"name": "shop"})
    listed = await admin.get("/api/admin/webhooks")
    (one,) = listed.json()["webhooks"]
    assert (one["url"], one["kinds"], one["open"], one["dead"]) == ("https://example.com/new", [], 0, 0)
    assert secret not in listed.text
    rotated = await admin.post("/api/admin/webhooks/shop/rotate")
    assert rotated.json()["secret"] != secret
    assert (await admin.delete("/api/admin/webhooks/shop")).status_code == 200
    assert (await admin.delete("/api/admin/webhooks/shop")).status_code == 404
    assert (await admin.post("/api/admin/webhooks/shop/rotate")).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": 3}, "url"),
        ({}, "body"),
        ({"url": "https://example.com", "secret": "mine"}, "body"),
        ({"url": "https://example.com", "kinds": "done"}, "kinds"),
        ({"url": "https://example.com", "private": "yes"}, "private"),
    ],
)
async def test_bad_input_names_its_field(admin: httpx.AsyncClient, body: object, field: str) -> None:
    answer = await admin.put("/api/admin/webhooks/shop", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"]["field"] == field


async def test_deliveries_are_listed_and_one_is_sent_again(
    admin: httpx.AsyncClient, alice: httpx.AsyncClient, store: Store
) -> None:
    await admin.put("/api/admin/webhooks/shop", json={"url": "https://example.com/in"})
    task = (await alice.post("/api/tasks", json={"type": "t", "payload": {}})).json()["id"]
    await outbox.hand_out(store)
    (letter,) = await outbox.take(store, "shop", limit=1, hold_seconds=60)
    await outbox.failed(store, letter, error="status 500", wait_seconds=None)
    query = {"state": "dead", "webhook": "shop", "task": task, "limit": "5"}
    (dead,) = (await admin.get("/api/admin/outbox", params=query)).json()["deliveries"]
    assert dead["last_error"] == "status 500"
    assert 'slackwater_deliveries{state="dead",webhook="shop"} 1.0' in (await admin.get("/metrics")).text
    assert (await admin.post(f"/api/admin/outbox/shop/{dead['id']}/redeliver")).status_code == 202
    assert (await admin.post("/api/admin/outbox/shop/999999/redeliver")).status_code == 404
    assert (await admin.get("/api/admin/outbox?state=open")).json()["deliveries"][0]["tries"] == 0
    for wrong in ("state=lost", "task=x", "limit=0"):
        assert (await admin.get(f"/api/admin/outbox?{wrong}")).status_code == 422


async def test_nobody_but_an_administrator_gets_in(alice: httpx.AsyncClient) -> None:
    for answer in (
        await alice.get("/api/admin/webhooks"),
        await alice.put("/api/admin/webhooks/mine", json={"url": "https://example.com"}),
        await alice.get("/api/admin/outbox"),
        await alice.post("/api/admin/outbox/shop/1/redeliver"),
    ):
        assert answer.status_code == 403
