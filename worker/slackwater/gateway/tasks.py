"""The users' routes. Rule: a caller sees and changes own tasks only; another's is answered like none at all."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response

from slackwater.activity import producer_active
from slackwater.admission import estimated_wait
from slackwater.claim import TaskState
from slackwater.gateway import described, inputs, responses
from slackwater.gateway.auth import Caller
from slackwater.gateway.context import TheCaller, TheGateway
from slackwater.gateway.refusals import admit, detail_of, refuse
from slackwater.store import admin, reading
from slackwater.store.admission import Accepted, Refusal
from slackwater.store.retrying import retry

router = APIRouter(prefix="/api/tasks", tags=["tasks"])
_PRIVATE = ("worker_id", "lease_until", "user_id", "epoch")


@router.post("", status_code=202, openapi_extra=described.TASK)
async def submit(request: Request, gateway: TheGateway, caller: TheCaller) -> Response:
    """Accept one task: 202, or 200 with the first one when its Idempotency-Key is known."""
    batch = await admit(gateway, [await inputs.read_task(request, caller.user)])
    if batch.refusal is not None:
        return await refuse(gateway, batch.refusal, caller.user)
    return JSONResponse(_accepted(batch.accepted[0]), 200 if batch.accepted[0].replayed else 202)


@router.post("/batch", status_code=202, openapi_extra=described.BATCH)
async def submit_batch(request: Request, gateway: TheGateway, caller: TheCaller) -> Response:
    """Accept several in order. If room ends in the middle, those before stay and `refused` says where and why."""
    wanted = await inputs.read_batch(request, caller.user)
    batch = await admit(gateway, wanted)
    refused = None
    if batch.refusal is not None:
        if not batch.accepted:
            return await refuse(gateway, batch.refusal, caller.user)
        detail, seconds = await detail_of(gateway, batch.refusal, caller.user)
        left = len(wanted) - len(batch.accepted)
        refused = {"index": len(batch.accepted), "count": left, "retry_after_seconds": seconds, "detail": detail}
    body = {"tasks": [_accepted(accepted) for accepted in batch.accepted], "refused": refused}
    return JSONResponse(body, 200 if all(accepted.replayed for accepted in batch.accepted) else 202)


@router.get("")
async def list_tasks(request: Request, gateway: TheGateway, caller: TheCaller) -> Response:
    """The newest first; `cursor` of one page gives the next. Admins may ask for all users' with `all=true`."""
    query = request.query_params
    limit, before = inputs.page(query)
    everybody = caller.admin and query.get("all") == "true"
    tasks = await reading.list_tasks(
        gateway.store,
        None if everybody else caller.user,
        states=inputs.states(query),
        queue=query.get("queue"),
        limit=limit,
        before=before,
    )
    cursor = str(tasks[-1].id) if len(tasks) == limit else None
    return JSONResponse(jsonable_encoder({"tasks": [asdict(task) for task in tasks], "cursor": cursor}))


@router.get("/{task_id}")
async def show(task_id: str, gateway: TheGateway, caller: TheCaller) -> Response:
    """One task. While it waits, with its place in the fair order and the wait, as an estimate."""
    view = await reading.task_view(gateway.store, existing(task_id), owner(caller))
    if view is None:
        raise responses.NotFound
    body: dict[str, Any] = {k: v for k, v in asdict(view).items() if caller.admin or k not in _PRIVATE}
    place = await reading.place_of(gateway.store, view.id) if view.state == "queued" else None
    if place is not None:
        average = await gateway.average.get()
        wait = estimated_wait(place.ahead + 1, concurrency=await gateway.concurrency(), average_seconds=average)
        body["estimate"] = {"queue_ahead": place.ahead, "estimated_wait_seconds": wait}
    return JSONResponse(jsonable_encoder(body))


@router.post("/{task_id}/cancel")
async def cancel(task_id: str, gateway: TheGateway, caller: TheCaller) -> Response:
    """200 with the state it has now, or 409 with the state that stands."""
    state = await admin.cancel(gateway.store, existing(task_id), user_id=owner(caller), who=caller.user)
    if state is None:
        raise responses.NotFound
    return JSONResponse({"id": task_id, "state": state})


@router.post("/{task_id}/retry", status_code=202)
async def retry_task(task_id: str, gateway: TheGateway, caller: TheCaller) -> Response:
    """Run an ended task again: passes admission like a new one, under a new settlement."""
    await gateway.require_redis()
    result = await retry(gateway.store, existing(task_id), user_id=owner(caller), who=caller.user)
    if isinstance(result, Refusal):
        return await refuse(gateway, result, caller.user)
    if not result:
        raise responses.NotFound
    return JSONResponse({"id": task_id, "state": "queued"}, 202)


@router.post("/{task_id}/heartbeat", status_code=204)
async def heartbeat(task_id: str, gateway: TheGateway, caller: TheCaller) -> Response:
    """The producer of a fed task is there (R-STALE-03): its word, and nothing else, keeps such a task alive."""
    view = await reading.task_view(gateway.store, existing(task_id), owner(caller))
    if view is None:
        raise responses.NotFound
    # The entry outlives its limit by a day, so the longest limit in use is no matter here.
    limit = gateway.store.constants.stale_seconds
    if not await producer_active(gateway.store, gateway.activity, view.id, limit_seconds=limit):
        raise admin.StateStands(TaskState(view.state))
    return Response(status_code=204)


def owner(caller: Caller) -> str | None:
    """Whose tasks the caller may act on: None for everybody's."""
    return None if caller.admin else caller.user


def _accepted(accepted: Accepted) -> dict[str, Any]:
    return {"id": str(accepted.task_id), "replayed": accepted.replayed}


def existing(text: str) -> UUID:
    found = inputs.task_id(text)
    if found is None:
        raise responses.NotFound
    return found
