"""Refusals of admission, completed outside its locks.

Rule: a refusal goes out complete even if the store can't tell the figures any more (R-ADMIT-18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi.responses import JSONResponse

from slackwater.admission import Code, Detail, queue_full
from slackwater.admission import retry_after as seconds_until
from slackwater.errors import Refused
from slackwater.gateway import responses
from slackwater.gateway.context import Gateway
from slackwater.logging import logger
from slackwater.store import reading
from slackwater.store.admission import Batch, Refusal, Submit, submit_many

log = logger("slackwater.gateway")
_COUNT_SECONDS = 2.0


async def admit(gateway: Gateway, wanted: Sequence[Submit]) -> Batch:
    """Through admission, counted. Raises Refused for what is not a matter of room, StoreUnavailable for no answer."""
    try:
        await gateway.require_redis()
        batch = await submit_many(gateway.store, wanted)
    except Refused as refused:
        gateway.metrics.refused.labels(refused.code).inc()
        raise
    new = [accepted for accepted in batch.accepted if not accepted.replayed]
    gateway.metrics.accepted.inc(len(new))
    gateway.metrics.replayed.inc(len(batch.accepted) - len(new))
    for accepted in new:
        log.info("accepted", task=str(accepted.task_id), trace=wanted[0].trace_id)
    return batch


async def detail_of(gateway: Gateway, refusal: Refusal, user: str) -> tuple[dict[str, object], int]:
    """The body's `detail` and the seconds for Retry-After."""
    gateway.metrics.refused.labels(refusal.code.value).inc()
    if refusal.code is Code.QUEUE_CLOSED:
        return responses.detail(refusal.code), responses.CLOSED_RETRY_SECONDS
    average = await gateway.average.get()
    full: Detail = queue_full(
        refusal.code,
        queued=refusal.queued,
        running=await _running(gateway, user if refusal.code is Code.USER_QUEUE_FULL else None),
        limit=refusal.limit,
        concurrency=refusal.concurrency,
        average_seconds=average,
    )
    return full.as_dict(), seconds_until(full, concurrency=refusal.concurrency, average_seconds=average)


async def refuse(gateway: Gateway, refusal: Refusal, user: str) -> JSONResponse:
    detail, seconds = await detail_of(gateway, refusal, user)
    return JSONResponse({"detail": detail}, responses.STATUS[refusal.code], {"Retry-After": str(seconds)})


async def _running(gateway: Gateway, user: str | None) -> int:
    try:
        async with asyncio.timeout(_COUNT_SECONDS):
            return await reading.count_running(gateway.store, user)
    except Exception:  # whatever is wrong with the store: 0 stands for unknown
        log.warning("running tasks could not be counted")
        return 0
