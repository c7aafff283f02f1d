"""One log line and one count a request. Rule: route templates, never paths as sent; a user's hash, never a payload."""

from __future__ import annotations

import time

from sse_starlette.sse import SendTimeoutError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slackwater.gateway.metrics import Metrics
from slackwater.logging import logger, user_hash

log = logger("slackwater.gateway")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Observe:
    """ASGI middleware: passes streams through as they come."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, streamed, start = 500, False, time.monotonic()

        async def watched(message: Message) -> None:
            nonlocal status, streamed
            if message["type"] == "http.response.start":
                status = message["status"]
                streamed = any(
                    name == b"content-type" and b"event-stream" in value for name, value in message["headers"]
                )
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except SendTimeoutError:  # the server closes what is left unfinished; the reader may resume by its last id
            self._metrics.dropped.inc()
            log.info("stream dropped: its reader takes nothing")
        finally:
            seconds = time.monotonic() - start
            route = getattr(scope.get("route"), "path", None)
            self._metrics.request(route, scope["method"], status, None if streamed else seconds)
            if route not in _QUIET:
                user = scope.get("slackwater.user")
                log.info(
                    "request",
                    route=route,
                    method=scope["method"],
                    status=status,
                    milliseconds=round(seconds * 1000, 1),
                    user_hash=None if user is None else user_hash(user),
                )
