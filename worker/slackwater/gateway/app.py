"""The application, put together. Rule: all it needs is given to it; it opens nothing but the listening connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import redis.asyncio
from fastapi import FastAPI

from slackwater.activity import Activity
from slackwater.gateway import admin, health, stream, tasks, webhooks
from slackwater.gateway.auth import Tokens
from slackwater.gateway.average import CachedAverage
from slackwater.gateway.context import Gateway
from slackwater.gateway.hub import Hub
from slackwater.gateway.observe import Observe
from slackwater.gateway.probes import RedisProbe
from slackwater.gateway.responses import add_handlers
from slackwater.gateway.settings import GatewaySettings
from slackwater.store import Store
from slackwater.store.policies import policy_cache
from slackwater.store.reading import average_duration


def create_app(
    *, settings: GatewaySettings, store: Store, slots: redis.asyncio.Redis, tokens: Tokens, listen_url: str
) -> FastAPI:
    """The gateway on an open store. `listen_url` must keep a session (no transaction pooling)."""
    gateway = Gateway(
        settings=settings,
        store=store,
        redis=RedisProbe(slots, seconds=settings.probe_seconds),
        tokens=tokens,
        hub=Hub(listen_url),
        average=CachedAverage(lambda: average_duration(store)),
        policy=policy_cache(store),
        activity=Activity(slots, constants=store.constants),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        listening = asyncio.create_task(gateway.hub.run(), name="listen")
        try:
            yield
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    app = FastAPI(title="Slackwater", version=version("slackwater"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.gateway = gateway
    for router in (stream.router, tasks.router, admin.router, webhooks.router, health.router):
        app.include_router(router)
    add_handlers(app)
    app.add_middleware(Observe, metrics=gateway.metrics)
    return app
