"""Events of a task as server-sent events. Rule: each event once, in order, resumed by number; the last is never lost.

A stream looks when it is told that there is news, and every 0.75 s anyway. The task's state is read before the events,
so an ended task's page holds its last event. Heartbeats are comments without an id. A failed look ends the stream with
an `error` event; the client resumes by the last id it saw, on any replica.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import anyio
from fastapi import APIRouter, Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from slackwater.errors import InvalidInput, StoreUnavailable
from slackwater.gateway import inputs, responses
from slackwater.gateway.context import Gateway, TheCaller, TheGateway
from slackwater.gateway.hub import news
from slackwater.gateway.tasks import existing, owner
from slackwater.store.reading import Event, EventPage, events_after

router = APIRouter(prefix="/api/tasks", tags=["events"])
RETRY_MILLISECONDS = 2000


@router.get("/{task_id}/text-events")
async def text_events(task_id: str, request: Request, gateway: TheGateway, caller: TheCaller) -> Response:
    """Events after `Last-Event-ID` (or `?after=`), then new ones as they come, until the task has ended."""
    try:
        after = _cursor(request)
    except InvalidInput as error:
        return responses.plain(400, "INVALID_INPUT", str(error), field=error.field, limit=None)
    if gateway.metrics.open_streams >= gateway.settings.max_streams:
        message = "This instance has as many streams as it may have."
        return responses.plain(503, "TOO_MANY_STREAMS", message, headers={"Retry-After": "5"})
    found, user = existing(task_id), owner(caller)
    first = await events_after(gateway.store, found, user, after)
    if first is None:
        raise responses.NotFound
    if first.last and not first.events and first.whole(after):
        return Response(status_code=204)  # nothing more will come; tells a browser not to connect again
    closing = anyio.Event()
    return EventSourceResponse(
        _follow(gateway, _Reader(found, user, closing), after, first),
        shutdown_event=closing,
        shutdown_grace_period=gateway.settings.poll_seconds + 1,
        ping=gateway.settings.heartbeat_seconds,
        ping_message_factory=lambda: ServerSentEvent(comment="heartbeat"),
        send_timeout=gateway.settings.send_timeout_seconds,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    task_id: UUID
    user: str | None
    closing: anyio.Event
    """Set when the server stops."""


async def _follow(gateway: Gateway, reader: _Reader, after: int, page: EventPage) -> AsyncIterator[ServerSentEvent]:
    with gateway.metrics.stream(), gateway.hub.following(reader.task_id) as told:
        yield ServerSentEvent(comment="open", retry=RETRY_MILLISECONDS)
        while True:
            if not page.whole(after):
                after = page.events[0].seq - 1 if page.events else after
                yield ServerSentEvent(event="gap", data=json.dumps({"state": page.state, "events_before": after}))
            for event in page.events:
                after = event.seq
                yield _message(event)
            if page.last:
                return
            if not page.more:
                await news(told, gateway.settings.poll_seconds)
            if reader.closing.is_set():
                return  # a whole answer; the client resumes at another replica
            told.clear()
            try:
                looked = await events_after(gateway.store, reader.task_id, reader.user, after)
            except StoreUnavailable:
                looked = None
            if looked is None:
                yield ServerSentEvent(event="error", data=json.dumps({"code": "STORE_UNAVAILABLE"}))
                return
            page = looked


def _message(event: Event) -> ServerSentEvent:
    data = {"seq": event.seq, "kind": event.kind, "at": event.created_at.isoformat(), "data": event.data}
    return ServerSentEvent(id=str(event.seq), event=event.kind, data=json.dumps(data, ensure_ascii=False))


def _cursor(request: Request) -> int:
    """The header wins: a browser that reconnects repeats the old URL."""
    for value, field in (
        (request.headers.get("last-event-id"), "Last-Event-ID"),
        (request.query_params.get("after"), "after"),
    ):
        if value not in (None, ""):
            return inputs.natural(str(value), field)
    return 0
