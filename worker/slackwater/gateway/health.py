"""Probes and figures. Rule: alive is about this process alone; ready is about accepting a task."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from slackwater.errors import StoreUnavailable
from slackwater.gateway.context import TheGateway
from slackwater.gateway.probes import postgres_fault
from slackwater.store import aftercare
from slackwater.store.adopting import unknown_tasks
from slackwater.store.outbox import backlog
from slackwater.store.reading import queue_stats

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Response:
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(gateway: TheGateway) -> Response:
    """Whether a task could be accepted now: a primary, writable, migrated Postgres, and Redis."""
    postgres = await postgres_fault(gateway.store)
    redis = None if await gateway.redis.there() else "no answer"
    ready = postgres is None and redis is None and not gateway.draining
    body = {"ready": ready, "draining": gateway.draining, "postgres": postgres or "ok", "redis": redis or "ok"}
    return JSONResponse(body, 200 if ready else 503)


@router.get("/metrics")
async def metrics(gateway: TheGateway) -> Response:
    """Figures of the queues are read at this moment; without the store the gateway's own remain."""
    try:
        gateway.metrics.queues(await queue_stats(gateway.store))
        gateway.metrics.deliveries(await backlog(gateway.store))
        gateway.metrics.unknown(await unknown_tasks(gateway.store))
        gateway.metrics.aftercare(*await aftercare.backlog(gateway.store))
    except StoreUnavailable:
        gateway.metrics.queues([])
        gateway.metrics.deliveries([])
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE_LATEST)
