"""The administrators' routes. Rule: one task or one queue at a time, each act audited; nothing works in bulk."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response

from slackwater.errors import InvalidInput
from slackwater.gateway import inputs, responses
from slackwater.gateway.context import TheAdmin, TheGateway
from slackwater.gateway.tasks import existing
from slackwater.limits import check_name, clean_error_text, parse_json
from slackwater.store import admin, reading

router = APIRouter(prefix="/api/admin", tags=["admin"])
_SMALL_BODY = 8 * 1024


@router.get("/queues")
async def queues(gateway: TheGateway, _caller: TheAdmin) -> Response:
    stats = await reading.queue_stats(gateway.store)
    return JSONResponse(jsonable_encoder({"queues": [asdict(queue) for queue in stats]}))


@router.post("/queues/{queue}/pause")
async def pause(queue: str, gateway: TheGateway, caller: TheAdmin) -> Response:
    """No claim from this queue any more; running tasks go on."""
    return await _pause(queue, gateway, caller.user, paused=True)


@router.post("/queues/{queue}/resume")
async def resume(queue: str, gateway: TheGateway, caller: TheAdmin) -> Response:
    return await _pause(queue, gateway, caller.user, paused=False)


@router.post("/tasks/{task_id}/finalize")
async def finalize(task_id: str, request: Request, gateway: TheGateway, caller: TheAdmin) -> Response:
    """End one task past every filter. `{"reason": "..."}` is kept with it."""
    body = await inputs.read_body(request, _SMALL_BODY)
    document = parse_json(body) if body else {}
    reason = document.get("reason", "") if isinstance(document, dict) else None
    if not isinstance(reason, str):
        raise InvalidInput("reason", None, "must be text")
    state = await admin.finalize(gateway.store, existing(task_id), who=caller.user, reason=clean_error_text(reason))
    if state is None:
        raise responses.NotFound
    return JSONResponse({"id": task_id, "state": state})


async def _pause(queue: str, gateway: TheGateway, who: str, *, paused: bool) -> Response:
    name = check_name(queue, field="queue")
    if not await admin.pause(gateway.store, name, paused=paused, who=who):
        return responses.plain(404, "NOT_FOUND", "There is no such queue.")
    return JSONResponse({"queue": name, "paused": paused})
