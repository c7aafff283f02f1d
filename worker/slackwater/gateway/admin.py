"""The administrators' routes. Rule: one task or one queue at a time, each act audited; nothing works in bulk."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response

from slackwater.errors import InvalidInput
from slackwater.gateway import inputs, responses
from slackwater.gateway.context import TheAdmin, TheGateway
from slackwater.gateway.tasks import existing
from slackwater.limits import PAYLOAD_BYTES, RESULT_BYTES, check_name, clean_error_text, parse_json
from slackwater.store import admin, adopting, reading

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
    reason = _text(await _object(request, _SMALL_BODY, {"reason"}), "reason")
    state = await admin.finalize(gateway.store, existing(task_id), who=caller.user, reason=clean_error_text(reason))
    if state is None:
        raise responses.NotFound
    return JSONResponse({"id": task_id, "state": state})


@router.post("/tasks/{task_id}/adopt")
async def adopt(task_id: str, request: Request, gateway: TheGateway, caller: TheAdmin) -> Response:
    """End an `unknown` task as done and charge it: `{"result"?, "reason"?}`. Without a result the outcome on record."""
    document = await _object(request, RESULT_BYTES + _SMALL_BODY, {"result", "reason"})
    reason = _text(document, "reason")
    done = await adopting.adopt(
        gateway.store,
        existing(task_id),
        result=document.get("result"),
        who=caller.user,
        reason=clean_error_text(reason),
    )
    if not done:
        raise responses.NotFound
    return JSONResponse({"id": task_id, "state": "done"})


@router.post("/submissions/{key}/outcome")
async def late_result(key: str, request: Request, gateway: TheGateway, caller: TheAdmin) -> Response:
    """Record what a provider has on record under a submission's key: `{"outcome"}`. The first word stands."""
    document = await _object(request, PAYLOAD_BYTES + _SMALL_BODY, {"outcome"})
    if document.get("outcome") is None:
        raise InvalidInput("outcome", None, "is missing")
    found = await adopting.late_result(gateway.store, key, document["outcome"], who=caller.user)
    if found is None:
        return responses.plain(404, "NOT_FOUND", "There is no submission with this key.")
    return JSONResponse({"task": str(found.task_id), "name": found.name, "n": found.n, "outcome": found.outcome})


async def _object(request: Request, limit: int, fields: set[str]) -> dict[str, Any]:
    body = await inputs.read_body(request, limit)
    document = parse_json(body) if body else {}
    if not isinstance(document, dict) or set(document) - fields:
        raise InvalidInput("body", sorted(fields), "must be an object with these fields")
    return document


def _text(document: dict[str, Any], field: str) -> str:
    value = document.get(field, "")
    if not isinstance(value, str):
        raise InvalidInput(field, None, "must be text")
    return value


async def _pause(queue: str, gateway: TheGateway, who: str, *, paused: bool) -> Response:
    name = check_name(queue, field="queue")
    if not await admin.pause(gateway.store, name, paused=paused, who=who):
        return responses.plain(404, "NOT_FOUND", "There is no such queue.")
    return JSONResponse({"queue": name, "paused": paused})
