"""/healthz and /metrics. Rule: healthy is who tried every pool of late, whether or not the API server answers."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from slackwater_operator.metrics import REGISTRY


class Web:
    def __init__(self, host: str, port: int, unhealthy: Callable[[], str]) -> None:
        self._host = host
        self._port = port
        self._unhealthy = unhealthy
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, reuse_port=False).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        why = self._unhealthy()
        return web.Response(text=why or "ok", status=503 if why else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
