"""The event stream over real connections: each event once, in order, across cuts, restarts, replicas (C129 to C135)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from slackwater.claim import ClaimedTask, Done
from slackwater.errors import StoreUnavailable
from slackwater.gateway import stream
from slackwater.store import Store, writing
from tests.integration.gateway.conftest import ALICE, BOB, MakeApp, Worker, eventually, serving

TASK = {"type": "render", "payload": {"frame": 3}}


@dataclass
class Message:
    id: str | None = None
    event: str | None = None
    data: str = ""
    comment: str | None = None

    @property
    def document(self) -> Any:
        return json.loads(self.data)


async def messages(answer: httpx.Response) -> AsyncIterator[Message]:
    message = Message()
    async for line in answer.aiter_lines():
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            yield message
            message = Message()
        elif not name:
            message.comment = value
        elif name == "data":
            message.data += value
        elif name in ("id", "event"):
            setattr(message, name, value)


async def read(url: str, task_id: str, after: int, *, stop_after: int | None = None) -> list[Message]:
    """Events after a cursor, until the server ends the stream or `stop_after` of them came."""
    found: list[Message] = []
    headers = {"Authorization": f"Bearer {ALICE}", "Last-Event-ID": str(after)}
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("GET", f"{url}/api/tasks/{task_id}/text-events", headers=headers) as answer,
    ):
        if answer.status_code == 204:
            return []
        assert answer.status_code == 200
        async for message in messages(answer):
            if message.event is not None:
                found.append(message)
                if len(found) == stop_after:
                    break
    return found


@pytest.fixture
async def running(alice: httpx.AsyncClient, worker: Worker) -> ClaimedTask:
    """A running task of alice: events 1 (queued) and 2 (started) are there."""
    await alice.post("/api/tasks", json=TASK)
    return await worker.claim()


async def emit(store: Store, task: ClaimedTask, first: int, last: int) -> None:
    for counter in range(first, last + 1):
        await writing.add_event(store, task.claim, counter, "delta", {"text": f"😀 {counter}\nline"})


async def test_cut_and_resumed_at_other_gateways_each_event_comes_once_in_order(
    store: Store, make_app: MakeApp, running: ClaimedTask
) -> None:
    task_id, seen = str(running.claim.task_id), list[Message]()
    async with serving(make_app()) as one, serving(make_app()) as two:
        writer = asyncio.create_task(emit(store, running, 1, 120))
        for url, cut in ((one, 50), (two, 1), (one, 20)):
            seen += await read(url, task_id, len(seen), stop_after=cut)
        await writer
    async with serving(make_app()) as three:  # after a restart
        await writing.finish(store, running.claim, Done(1))
        seen += await read(three, task_id, len(seen))
    assert [message.id for message in seen] == [str(i) for i in range(1, 124)]
    assert [seen[0].event, seen[1].event, seen[2].event, seen[-1].event] == ["queued", "started", "delta", "done"]
    assert seen[2].document["data"] == {"text": "😀 1\nline"}


async def test_an_event_arrives_while_the_stream_is_open(store: Store, url: str, running: ClaimedTask) -> None:
    reader = asyncio.create_task(read(url, str(running.claim.task_id), 2))
    await emit(store, running, 1, 3)
    await writing.finish(store, running.claim, Done(1))
    assert [message.event for message in await reader] == ["delta", "delta", "delta", "done"]


async def test_a_notification_brings_it_without_waiting_for_the_next_look(
    store: Store, make_app: MakeApp, running: ClaimedTask
) -> None:
    app = make_app(poll_seconds=600)
    async with serving(app) as url:
        reader = asyncio.create_task(read(url, str(running.claim.task_id), 2, stop_after=2))
        await eventually(lambda: len(app.state.gateway.hub) == 1)
        await emit(store, running, 1, 1)
        await writing.finish(store, running.claim, Done(1))
        assert [message.id for message in await asyncio.wait_for(reader, 10)] == ["3", "4"]


async def test_a_lost_notification_costs_at_most_the_time_to_the_next_look(
    store: Store, app: FastAPI, url: str, running: ClaimedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.gateway.hub, "told", lambda _task_id: None)
    reader = asyncio.create_task(read(url, str(running.claim.task_id), 2))
    await eventually(lambda: len(app.state.gateway.hub) == 1)
    start = time.monotonic()
    await writing.finish(store, running.claim, Done(1))
    assert [message.event for message in await reader] == ["done"]
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("headers", "query", "first"),
    [({}, {}, "1"), ({}, {"after": "1"}, "2"), ({"Last-Event-ID": "2"}, {"after": "0"}, "3"), ({}, {"after": ""}, "1")],
)
async def test_the_cursor_comes_from_the_header_or_the_query(
    store: Store, url: str, running: ClaimedTask, headers: dict[str, str], query: dict[str, str], first: str
) -> None:
    await writing.finish(store, running.claim, Done(1))
    path = f"{url}/api/tasks/{running.claim.task_id}/text-events"
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {ALICE}", **headers}) as client:
        answer = await client.get(path, params=query)
    ids = [line.removeprefix("id: ") for line in answer.text.splitlines() if line.startswith("id: ")]
    assert ids[0] == first
    assert ids[-1] == "3"


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "٣", "9" * 30])
async def test_a_cursor_that_is_no_number_is_answered_400(
    alice: httpx.AsyncClient, running: ClaimedTask, cursor: str
) -> None:
    answer = await alice.get(f"/api/tasks/{running.claim.task_id}/text-events", params={"after": cursor})
    assert answer.status_code == 400


async def test_a_stream_that_has_seen_the_end_is_not_opened_again(
    store: Store, alice: httpx.AsyncClient, running: ClaimedTask
) -> None:
    await writing.finish(store, running.claim, Done(1))
    answer = await alice.get(f"/api/tasks/{running.claim.task_id}/text-events", headers={"Last-Event-ID": "3"})
    assert answer.status_code == 204


async def test_heartbeats_come_without_an_id(make_app: MakeApp, running: ClaimedTask) -> None:
    async with (
        serving(make_app(heartbeat_seconds=0.05)) as url,
        httpx.AsyncClient(headers={"Authorization": f"Bearer {ALICE}"}) as client,
        client.stream("GET", f"{url}/api/tasks/{running.claim.task_id}/text-events") as answer,
    ):
        found: list[Message] = []
        async for message in messages(answer):
            found.append(message)
            if sum(m.comment == "heartbeat" for m in found) == 2:
                break
    beats = [message for message in found if message.comment == "heartbeat"]
    assert all(beat.id is None and beat.event is None and not beat.data for beat in beats)


async def test_removed_events_leave_a_gap_event_and_the_rest(store: Store, url: str, running: ClaimedTask) -> None:
    await emit(store, running, 1, 3)
    await writing.finish(store, running.claim, Done(1))
    async with store.transaction() as connection:
        await connection.execute(text("DELETE FROM slackwater.event WHERE seq <= 3"))
    found = await read(url, str(running.claim.task_id), 1)
    assert [(m.event, m.id) for m in found] == [("gap", None), ("delta", "4"), ("delta", "5"), ("done", "6")]
    async with store.transaction() as connection:
        await connection.execute(text("DELETE FROM slackwater.event"))
    [gap] = await read(url, str(running.claim.task_id), 1)
    assert (gap.event, gap.document["state"]) == ("gap", "done")


async def test_a_retried_task_streams_on_after_its_first_end(
    store: Store, url: str, alice: httpx.AsyncClient, running: ClaimedTask, worker: Worker
) -> None:
    task_id = str(running.claim.task_id)
    await alice.post(f"/api/tasks/{task_id}/cancel")
    await alice.post(f"/api/tasks/{task_id}/retry")
    await alice.post(f"/api/tasks/{task_id}/cancel")
    kinds = [message.event for message in await read(url, task_id, 0)]
    assert kinds == ["queued", "started", "cancelled", "queued", "cancelled"]


async def test_a_failed_look_ends_the_stream_with_an_error_event(
    app: FastAPI, url: str, running: ClaimedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise StoreUnavailable("postgresql://user:secret@host")

    reader = asyncio.create_task(read(url, str(running.claim.task_id), 0))
    await eventually(lambda: len(app.state.gateway.hub) == 1)
    monkeypatch.setattr(stream, "events_after", broken)
    last = (await reader)[-1]
    assert (last.event, last.id, last.document) == ("error", None, {"code": "STORE_UNAVAILABLE"})


async def test_closed_streams_leave_nothing_behind(app: FastAPI, url: str, running: ClaimedTask) -> None:
    gateway = app.state.gateway
    for _ in range(4):
        await asyncio.gather(*(read(url, str(running.claim.task_id), 0, stop_after=1) for _ in range(10)))
    await eventually(lambda: gateway.metrics.open_streams == 0 and len(gateway.hub) == 0)


async def test_a_reader_that_takes_nothing_is_dropped_and_others_are_not(
    store: Store, make_app: MakeApp, running: ClaimedTask
) -> None:
    app = make_app(send_timeout_seconds=0.5)
    task_id, count = running.claim.task_id, 400
    async with store.transaction() as connection:
        await connection.execute(
            text("""INSERT INTO slackwater.event (task_id, seq, epoch, counter, kind, data)
                    SELECT CAST(:id AS uuid), n + 2, 1, n, 'delta', to_jsonb(repeat('x', 60000))
                      FROM generate_series(1, :count) AS n"""),
            {"id": str(task_id), "count": count},
        )
    await writing.finish(store, running.claim, Done(1))
    async with serving(app) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1024)
        request = f"GET /api/tasks/{task_id}/text-events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n\r\n"
        writer.write(request.encode())
        await reader.readline()  # it has begun; and now we read no more
        seen = await read(url, str(task_id), 0)
        assert [message.id for message in seen] == [str(n) for n in range(1, count + 4)]
        await eventually(lambda: app.state.gateway.metrics.open_streams == 0)
        assert b"slackwater_gateway_streams_dropped_total 1.0" in app.state.gateway.metrics.text()
        writer.close()


async def test_streams_above_the_cap_are_refused(make_app: MakeApp, running: ClaimedTask) -> None:
    app = make_app(max_streams=1)
    path = f"/api/tasks/{running.claim.task_id}/text-events"
    headers = {"Authorization": f"Bearer {ALICE}"}
    async with (
        serving(app) as url,
        httpx.AsyncClient(base_url=url, headers=headers) as client,
        client.stream("GET", path) as first,
    ):
        assert first.status_code == 200
        await eventually(lambda: app.state.gateway.metrics.open_streams == 1)
        second = await client.get(path)
    assert (second.status_code, second.json()["detail"]["code"]) == (503, "TOO_MANY_STREAMS")
    assert int(second.headers["retry-after"]) > 0


async def test_another_users_stream_is_not_told(url: str, running: ClaimedTask) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {BOB}"}) as client:
        answer = await client.get(f"{url}/api/tasks/{running.claim.task_id}/text-events")
    assert answer.status_code == 404
