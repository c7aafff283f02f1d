"""Administrators' routes to webhooks and deliveries. Rule: a secret is in the one answer that made it, nowhere else."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response

from slackwater.errors import InvalidInput
from slackwater.gateway import inputs, responses
from slackwater.gateway.context import TheAdmin, TheGateway
from slackwater.limits import parse_json
from slackwater.store import outbox, webhooks
from slackwater.store.reading import PAGE, PAGE_MAX

router = APIRouter(prefix="/api/admin", tags=["admin"])
_SMALL_BODY = 8 * 1024
_FIELDS = frozenset({"url", "kinds", "private"})
STATES = ("open", "delivered", "dead")


@router.get("/webhooks")
async def list_webhooks(gateway: TheGateway, _caller: TheAdmin) -> Response:
    """Where the outbox goes, and how much of it waits."""
    found = [asdict(webhook) for webhook in await webhooks.webhooks(gateway.store)]
    waiting = {backlog.webhook: backlog for backlog in await outbox.backlog(gateway.store)}
    for one in found:
        backlog = waiting.get(one["name"])
        one |= {"open": backlog.open if backlog else 0, "dead": backlog.dead if backlog else 0}
    return JSONResponse(jsonable_encoder({"webhooks": found}))


@router.put("/webhooks/{name}")
async def put_webhook(name: str, request: Request, gateway: TheGateway, caller: TheAdmin) -> Response:
    """Make or change one: `{"url", "kinds"?, "private"?}`. 201 with its secret if it is new, shown this once."""
    document = parse_json(await inputs.read_body(request, _SMALL_BODY))
    if not isinstance(document, dict) or "url" not in document or set(document) - _FIELDS:
        raise InvalidInput("body", sorted(_FIELDS), "must be an object with a url")
    url, kinds, private = document["url"], document.get("kinds", []), document.get("private", False)
    if not isinstance(url, str):
        raise InvalidInput("url", None, "must be text")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise InvalidInput("kinds", None, "must be a list of names")
    if not isinstance(private, bool):
        raise InvalidInput("private", None, "must be true or false")
    secret = await webhooks.put(gateway.store, name, url, kinds=kinds, private=private, who=caller.user)
    if secret is None:
        return JSONResponse({"name": name})
    return JSONResponse({"name": name, "secret": secret}, 201)


@router.post("/webhooks/{name}/rotate")
async def rotate(name: str, gateway: TheGateway, caller: TheAdmin) -> Response:
    """A new secret; the one before signs beside it until the next rotation."""
    secret = await webhooks.rotate(gateway.store, name, who=caller.user)
    return _none(name) if secret is None else JSONResponse({"name": name, "secret": secret})


@router.delete("/webhooks/{name}")
async def remove(name: str, gateway: TheGateway, caller: TheAdmin) -> Response:
    """Together with its deliveries, sent or not."""
    gone = await webhooks.remove(gateway.store, name, who=caller.user)
    return JSONResponse({"name": name, "removed": True}) if gone else _none(name)


@router.get("/outbox")
async def list_deliveries(request: Request, gateway: TheGateway, _caller: TheAdmin) -> Response:
    """Deliveries, the newest first: `?webhook=&task=&state=open|delivered|dead&limit=`."""
    query = request.query_params
    state = query.get("state")
    if state is not None and state not in STATES:
        raise InvalidInput("state", list(STATES), "is none of these")
    limit = inputs.natural(query.get("limit", str(PAGE)), "limit")
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidInput("limit", PAGE_MAX, f"must be from 1 to {PAGE_MAX}")
    wanted = query.get("task")
    task_id = None if wanted is None else inputs.task_id(wanted)
    if wanted is not None and task_id is None:
        raise InvalidInput("task", None, "is no task's id")
    found = await outbox.deliveries(
        gateway.store, webhook=query.get("webhook"), task_id=task_id, state=state, limit=limit
    )
    return JSONResponse(jsonable_encoder({"deliveries": [asdict(one) for one in found]}))


@router.post("/outbox/{webhook}/{delivery}/redeliver", status_code=202)
async def redeliver(webhook: str, delivery: str, gateway: TheGateway, caller: TheAdmin) -> Response:
    """Send one again, delivered or dead, with all its tries before it."""
    number = inputs.natural(delivery, "delivery")
    if not await outbox.redeliver(gateway.store, webhook, number, who=caller.user):
        return responses.plain(404, "NOT_FOUND", "There is no such delivery.")
    body: dict[str, Any] = {"webhook": webhook, "delivery": number, "state": "open"}
    return JSONResponse(body, 202)


def _none(_name: str) -> Response:
    return responses.plain(404, "NOT_FOUND", "There is no such webhook.")
