"""Submitting over HTTP: what is accepted, what a full queue answers, repeats, and bad input."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis

from slackwater.claim import Done
from slackwater.gateway import refusals
from slackwater.policy import Policy
from slackwater.store import Store, reading, writing
from slackwater.store.policies import write_policy
from tests.integration.gateway.conftest import ADMIN, FIELDS, MakeApp, Worker, client_of, rows_in, serving

TASK = {"type": "render", "payload": {"frame": 3}}
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}")


async def fill(client: httpx.AsyncClient, count: int) -> list[str]:
    answers = [await client.post("/api/tasks", json=TASK) for _ in range(count)]
    assert [answer.status_code for answer in answers] == [202] * count
    return [answer.json()["id"] for answer in answers]


async def test_a_task_is_accepted_and_can_be_read(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/api/tasks", json={**TASK, "priority": 1, "channel": "gpu", "cost": 2})
    assert answer.status_code == 202
    view = (await alice.get(f"/api/tasks/{answer.json()['id']}")).json()
    expected = {
        "type": "render",
        "payload": {"frame": 3},
        "state": "queued",
        "priority": 1,
        "channel": "gpu",
        "queue": "default",
        "result": None,
        "error": None,
        "estimate": {"queue_ahead": 0, "estimated_wait_seconds": 120},
    }
    assert {key: view[key] for key in expected} == expected


async def test_a_user_sees_no_internal_ids_and_an_admin_does(
    alice: httpx.AsyncClient, admin: httpx.AsyncClient, worker: Worker
) -> None:
    [task_id] = await fill(alice, 1)
    await worker.claim()
    own, all_of_it = [await client.get(f"/api/tasks/{task_id}") for client in (alice, admin)]
    private = {"worker_id", "lease_until", "user_id", "epoch"}
    assert private.isdisjoint(own.json())
    assert private <= set(all_of_it.json())


async def test_a_full_user_is_refused_with_all_fields(alice: httpx.AsyncClient, worker: Worker) -> None:
    await fill(alice, 3)
    await worker.claim()
    await worker.claim()
    await fill(alice, 2)
    answer = await alice.post("/api/tasks", json=TASK)
    assert answer.status_code == 429
    detail = answer.json()["detail"]
    assert set(detail) == FIELDS
    message = detail.pop("message")
    assert detail == {
        "code": "USER_QUEUE_FULL",
        "queued_count": 3,
        "running_count": 2,
        "queue_ahead": 3,
        "estimated_wait_seconds": 120,
        "limit": 3,
    }
    assert answer.headers["retry-after"] == "30"
    assert not UUID_TEXT.search(message)


async def test_a_full_system_is_refused_with_all_fields(
    store: Store, alice: httpx.AsyncClient, bob: httpx.AsyncClient, worker: Worker
) -> None:
    await write_policy(store, Policy(user_pending_limit=20, system_pending_limit=20), who="test")
    await fill(alice, 20)
    for _ in range(4):
        await worker.claim()
    await fill(alice, 4)
    answer = await bob.post("/api/tasks", json=TASK)
    assert answer.status_code == 503
    detail = answer.json()["detail"]
    assert set(detail) == FIELDS
    del detail["message"]
    assert detail == {
        "code": "SYSTEM_QUEUE_FULL",
        "queued_count": 20,
        "running_count": 4,
        "queue_ahead": 20,
        "estimated_wait_seconds": 600,
        "limit": 20,
    }
    assert not UUID_TEXT.search(answer.text)


async def test_fifty_requests_at_once_get_exactly_the_limit(store: Store, alice: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(alice.post("/api/tasks", json=TASK) for _ in range(50)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [202] * 3 + [429] * 47
    assert all(set(a.json()["detail"]) == FIELDS for a in answers if a.status_code == 429)
    assert await rows_in(store, "task") == 3


async def test_a_refusal_is_complete_when_the_store_cannot_count(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, make_app: MakeApp
) -> None:
    async def broken(*_: Any) -> float:
        raise RuntimeError("as an old store would")

    await fill(alice, 3)
    monkeypatch.setattr(reading, "count_running", broken)
    monkeypatch.setattr("slackwater.gateway.app.average_duration", broken)
    async with client_of(make_app()) as client:
        answer = await client.post("/api/tasks", json=TASK)
    assert answer.status_code == 429
    detail = answer.json()["detail"]
    assert set(detail) == FIELDS
    assert (detail["running_count"], detail["estimated_wait_seconds"]) == (0, 120)


async def test_a_hundred_refusals_ask_for_the_average_once(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, make_app: MakeApp
) -> None:
    asked = 0

    async def counted(store: Store) -> float:
        nonlocal asked
        asked += 1
        return await reading.average_duration(store)

    monkeypatch.setattr("slackwater.gateway.app.average_duration", counted)
    await fill(alice, 3)
    async with client_of(make_app()) as client:
        answers = await asyncio.gather(*(client.post("/api/tasks", json=TASK) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {429}
    assert asked == 1


async def test_the_average_comes_from_what_was_done(store: Store, alice: httpx.AsyncClient, worker: Worker) -> None:
    await fill(alice, 1)
    taken = await worker.claim()
    await writing.finish(store, taken.claim, Done({"ok": True}))
    async with store.transaction() as connection:
        await connection.exec_driver_sql("UPDATE slackwater.task SET started_at = finished_at - interval '40 s'")
    await fill(alice, 3)
    detail = (await alice.post("/api/tasks", json=TASK)).json()["detail"]
    assert detail["estimated_wait_seconds"] == 40


@pytest.mark.parametrize("when", ["at once", "after the end", "at another gateway", "after a restart"])
async def test_a_repeat_with_the_key_gets_the_first_task(
    store: Store, alice: httpx.AsyncClient, make_app: MakeApp, worker: Worker, postgres_url: str, when: str
) -> None:
    headers = {"Idempotency-Key": "order-77"}
    first = await alice.post("/api/tasks", json=TASK, headers=headers)
    await fill(alice, 2)  # full
    if when == "after the end":
        await writing.finish(store, (await worker.claim()).claim, Done(None))
        await fill(alice, 1)
    other = Store.connect(postgres_url, pool_size=1)
    try:
        there = make_app(on=other) if when in ("at another gateway", "after a restart") else make_app()
        async with client_of(there) as client:
            again = await client.post("/api/tasks", json=TASK, headers=headers)
    finally:
        await other.close()
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == {"id": first.json()["id"], "replayed": True}
    async with store.transaction() as connection:
        found = await connection.exec_driver_sql("SELECT count(*) FROM slackwater.idempotency")
        assert found.scalar_one() == 1


async def test_the_key_with_another_body_is_a_conflict(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    await alice.post("/api/tasks", json=TASK, headers=headers)
    answer = await alice.post("/api/tasks", json={**TASK, "payload": 2}, headers=headers)
    assert (answer.status_code, answer.json()["detail"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await bob.post("/api/tasks", json={**TASK, "payload": 2}, headers=headers)).status_code == 202


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "type"),
        ({"type": "render"}, "payload"),
        ({**TASK, "payload": {"a": ["\x00"]}}, "payload.a[0]"),
        ({**TASK, "payload": {"a": "\ud800"}}, "payload.a"),
        ({**TASK, "type": "no spaces"}, "type"),
        ({**TASK, "queue": ""}, "queue"),
        ({**TASK, "priority": 99}, "priority"),
        ({**TASK, "cost": -1}, "cost"),
        ({**TASK, "run_at": "tomorrow"}, "run_at"),
        ({**TASK, "user": "bob"}, "user"),
        ([], "body"),
        ("x", "body"),
    ],
)
async def test_bad_input_is_named_by_its_field_and_stores_nothing(
    store: Store, alice: httpx.AsyncClient, body: Any, field: str
) -> None:
    answer = await alice.post("/api/tasks", content=json.dumps(body))
    detail = answer.json()["detail"]
    assert (answer.status_code, detail["code"], detail["field"]) == (422, "INVALID_INPUT", field)
    assert await rows_in(store, "task") == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"type":"render","payload":NaN}',
        b'{"type":"render","payload":1e999}',
        b'{"type":"render","payload":' + b"[" * 100_000,
        b'{"type":"render","payload":' + b"[" * 65 + b"]" * 65 + b"}",
    ],
)
async def test_a_body_that_is_no_json_is_refused(alice: httpx.AsyncClient, body: bytes) -> None:
    assert (await alice.post("/api/tasks", content=body)).status_code == 422


async def test_emoji_come_back_unchanged(alice: httpx.AsyncClient) -> None:
    payload = {"👩‍🎨": "ü 😀"}
    task_id = (await alice.post("/api/tasks", json={**TASK, "payload": payload})).json()["id"]
    assert (await alice.get(f"/api/tasks/{task_id}")).json()["payload"] == payload


@pytest.mark.parametrize(("extra", "status"), [(-1, 202), (0, 202), (1, 413)])
async def test_the_payloads_limit_is_exact(alice: httpx.AsyncClient, extra: int, status: int) -> None:
    payload = "x" * (256 * 1024 - 2 + extra)
    answer = await alice.post("/api/tasks", json={"type": "render", "payload": payload})
    assert answer.status_code == status
    if status == 413:
        detail = answer.json()["detail"]
        assert (detail["code"], detail["field"], detail["limit"]) == ("TOO_LARGE", "payload", 256 * 1024)


async def test_a_body_without_length_is_not_read_to_its_end(url: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1600):
            sent += 64 * 1024
            yield b"x" * 64 * 1024

    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        try:
            answer = await client.post("/api/tasks", content=endless())
        except (httpx.WriteError, httpx.ReadError):
            answer = None  # the connection was closed while we were still sending
    assert answer is None or answer.status_code == 413
    assert sent < 32 * 1024 * 1024


async def test_a_body_with_a_length_above_the_limit_is_not_read_at_all(alice: httpx.AsyncClient) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"x"

    answer = await alice.post("/api/tasks", content=body(), headers={"Content-Length": "104857600"})
    assert (answer.status_code, read) == (413, 0)


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic YTpi", "Bearer alice", ""])
async def test_without_a_valid_token_nothing_is_told(app: FastAPI, store: Store, header: str | None) -> None:
    async with client_of(app, None) as client:
        answer = await client.post("/api/tasks", json=TASK, headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert await rows_in(store, "task") == 0


async def test_a_batch_is_refused_in_the_middle_and_goes_on_with_its_key(
    store: Store, alice: httpx.AsyncClient, worker: Worker
) -> None:
    body = {"tasks": [{**TASK, "payload": i} for i in range(5)]}
    headers = {"Idempotency-Key": "batch-1"}
    answer = (await alice.post("/api/tasks/batch", json=body, headers=headers)).json()
    assert len(answer["tasks"]) == 3
    refused = answer["refused"]
    assert (refused["index"], refused["count"], set(refused["detail"])) == (3, 2, FIELDS)
    assert await rows_in(store, "task") == await rows_in(store, "claim") == 3
    await worker.claim()
    again = (await alice.post("/api/tasks/batch", json=body, headers=headers)).json()
    assert [task["replayed"] for task in again["tasks"]] == [True, True, True, False]
    assert [task["id"] for task in again["tasks"][:3]] == [task["id"] for task in answer["tasks"]]


async def test_a_batch_without_room_for_any_is_a_refusal(alice: httpx.AsyncClient) -> None:
    await fill(alice, 3)
    answer = await alice.post("/api/tasks/batch", json={"tasks": [TASK]})
    assert (answer.status_code, set(answer.json()["detail"])) == (429, FIELDS)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tasks": [TASK, {**TASK, "payload": "\x00"}]}, "tasks[1].payload"),
        ({"tasks": [TASK, 3]}, "tasks[1]"),
        ({"tasks": [TASK, {**TASK, "more": 1}]}, "tasks[1].more"),
        ({"tasks": []}, "tasks"),
        ({"tasks": [TASK] * 101}, "tasks"),
        ({}, "body"),
    ],
)
async def test_a_batch_with_bad_input_stores_nothing(
    store: Store, alice: httpx.AsyncClient, body: Any, field: str
) -> None:
    answer = await alice.post("/api/tasks/batch", json=body)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, field)
    assert await rows_in(store, "task") == 0


async def test_without_redis_nothing_is_accepted(make_app: MakeApp, store: Store) -> None:
    gone = Redis(unix_socket_path="/nonexistent/redis.sock")
    async with client_of(make_app(slots=gone)) as client:
        answer = await client.post("/api/tasks", json=TASK)
        ready = await client.get("/readyz")
    await gone.aclose()
    assert (answer.status_code, answer.json()["detail"]["code"]) == (503, "STORE_UNAVAILABLE")
    assert set(answer.json()["detail"]) == FIELDS
    assert int(answer.headers["retry-after"]) > 0
    assert await rows_in(store, "task") == 0
    assert (ready.status_code, ready.json()["redis"]) == (503, "no answer")


async def test_without_postgres_the_answer_says_so_and_where_it_is_not(make_app: MakeApp) -> None:
    gone = Store.connect("postgresql://user:secret@/db?host=/nonexistent", pool_size=1)
    async with client_of(make_app(on=gone)) as client:
        answers = [
            await client.post("/api/tasks", json=TASK),
            await client.get("/api/tasks"),
            await client.get("/readyz"),
            await client.get("/metrics"),
        ]
    await gone.close()
    assert [answer.status_code for answer in answers] == [503, 503, 503, 200]
    assert answers[0].json()["detail"]["code"] == "STORE_UNAVAILABLE"
    assert not any("secret" in answer.text or "nonexistent" in answer.text for answer in answers)


async def test_a_fault_is_a_plain_500_without_its_words(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("postgresql://user:secret@host")

    monkeypatch.setattr(refusals, "submit_many", broken)
    answer = await alice.post("/api/tasks", json=TASK)
    assert (answer.status_code, answer.json()["detail"]["code"]) == (500, "INTERNAL")
    assert "secret" not in answer.text


async def test_two_gateways_share_one_limit(make_app: MakeApp) -> None:
    async with (
        serving(make_app()) as one,
        serving(make_app()) as two,
        httpx.AsyncClient(headers={"Authorization": f"Bearer {ADMIN}"}) as client,
    ):
        answers = await asyncio.gather(
            *(client.post(f"{url}/api/tasks", json=TASK) for url in (one, two) for _ in range(10))
        )
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [429] * 17
