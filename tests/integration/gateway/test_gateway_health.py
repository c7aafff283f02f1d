"""Probes, figures and log lines: what is told without a token, and what never is (C143)."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from slackwater.gateway import inputs
from slackwater.gateway.probes import postgres_fault
from slackwater.policy import Policy
from slackwater.store import Store
from slackwater.store.policies import write_policy
from tests.integration.gateway.conftest import Worker, client_of
from tests.integration.servers import Postgres

TASK = {"type": "render", "payload": {"frame": 3}}


def series(page: str) -> set[str]:
    """Names with labels, without values."""
    return {line.rsplit(" ", 1)[0] for line in page.splitlines() if line and not line.startswith("#")}


def value(page: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    raise AssertionError(f"no {name} {labels} in:\n{page}")


async def test_probes_and_figures_need_no_token(app: FastAPI) -> None:
    async with client_of(app, None) as client:
        answers = [await client.get(path) for path in ("/healthz", "/readyz", "/metrics")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[1].json() == {"ready": True, "draining": False, "postgres": "ok", "redis": "ok"}


async def test_a_draining_gateway_is_alive_but_not_ready(app: FastAPI, alice: httpx.AsyncClient) -> None:
    app.state.gateway.draining = True
    assert (await alice.get("/healthz")).status_code == 200
    assert (await alice.get("/readyz")).status_code == 503
    assert (await alice.post("/api/tasks", json=TASK)).status_code == 202


async def test_a_database_without_tables_is_not_ready(postgres_server: Postgres, postgres_url: str) -> None:
    empty = Store.connect(postgres_server.url("template1"), pool_size=1)
    try:
        assert await postgres_fault(empty) == "not migrated: run `slackwater migrate`"
    finally:
        await empty.close()


async def test_a_read_only_default_does_no_harm(postgres_url: str) -> None:
    store = Store.connect(f"{postgres_url}&options=-cdefault_transaction_read_only%3Don", pool_size=1)
    try:
        assert await postgres_fault(store) is None
    finally:
        await store.close()


async def test_figures_follow_what_happens(
    store: Store, app: FastAPI, alice: httpx.AsyncClient, worker: Worker
) -> None:
    headers = {"Idempotency-Key": "k"}
    for _ in range(2):
        await alice.post("/api/tasks", json=TASK, headers=headers)
    for _ in range(3):
        await alice.post("/api/tasks", json=TASK)
    await worker.claim()
    page = (await alice.get("/metrics")).text
    assert value(page, "slackwater_gateway_tasks_accepted_total") == 3
    assert value(page, "slackwater_gateway_tasks_replayed_total") == 1
    assert value(page, "slackwater_gateway_refusals_total", code="USER_QUEUE_FULL") == 1
    assert value(page, "slackwater_queue_tasks", queue="default", state="due") == 2
    assert value(page, "slackwater_queue_tasks", queue="default", state="running") == 1
    assert value(page, "slackwater_gateway_requests_total", route="/api/tasks", method="POST", status="429") == 1


async def test_the_number_of_series_does_not_grow_with_what_is_sent(
    store: Store, alice: httpx.AsyncClient, admin: httpx.AsyncClient, worker: Worker
) -> None:
    await write_policy(store, Policy(user_pending_limit=1000, system_pending_limit=1000), who="test")

    async def traffic(rounds: range) -> set[str]:
        for i in rounds:
            task_id = (await alice.post("/api/tasks", json={**TASK, "queue": f"q{i}"})).json()["id"]
            await alice.get(f"/api/tasks/{task_id}")
            await alice.get(f"/random/{i}")
            await alice.get(f"/api/tasks/{i}")
            await alice.post("/api/tasks", json={**TASK, "type": f"bad type {i}"})
            await alice.request(f"VERB{i}", "/api/tasks")
        return series((await alice.get("/metrics")).text)

    # Twice, so that the routes of the first /metrics are there.
    await traffic(range(2))
    before = await traffic(range(2, 4))
    after = await traffic(range(4, 40))
    assert after == before
    page = "\n".join(after)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}|alice|random|q39|VERB", page)


async def test_log_lines_hold_a_route_and_a_hash_and_nothing_that_was_sent(alice: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {"type": "render", "payload": {"prompt": "very-private"}}
    with capture_logs() as lines:
        answer = await alice.post("/api/tasks", json=body)
        await alice.get(f"/api/tasks/{answer.json()['id']}")
        await alice.get("/secret-path")
    text = repr(lines)
    assert "very-private" not in text
    assert "alice" not in text
    assert "secret-path" not in text
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["route"] for line in requests] == ["/api/tasks", "/api/tasks/{task_id}", None]
    accepted = next(line for line in lines if line["event"] == "accepted")
    assert accepted["task"] == answer.json()["id"]


async def test_a_fault_in_a_statement_keeps_the_payload_out_of_the_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    from slackwater.store.sql import sql

    with caplog.at_level(logging.DEBUG), pytest.raises(Exception, match="invalid input syntax") as failed:
        async with store.transaction() as connection:
            await connection.execute(sql("SELECT CAST(:payload AS int), 'x'"), {"payload": "very-private"})
    # What the driver itself says may quote the value; the statement's list of parameters must not add to it.
    assert "[parameters" not in str(failed.value)


async def test_the_description_tells_of_the_bodies_and_their_limits(app: FastAPI) -> None:
    async with client_of(app, None) as client:
        document = (await client.get("/openapi.json")).json()
    body = document["paths"]["/api/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["type", "payload"]
    assert body["properties"]["priority"]["maximum"] == 10
    assert set(body["properties"]) == inputs.FIELDS
