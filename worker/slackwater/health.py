"""Health over HTTP, served by its own thread: a dead-locked main loop answers 503 instead of hanging.

Ready = registered, and the store answered a heartbeat lately. A hold, a pause, a cordon or a lost Redis leaves a worker
ready: a rollout must not read those as a broken pod. Live = the main loop and the renewal thread turned lately.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from slackwater import metrics

StartResponse = Callable[..., Any]


@dataclass
class Pulse:
    """What the probes judge; written by the worker, read by the serving thread."""

    ready_seconds: float = 45.0
    live_seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    registered: bool = False
    heartbeat_at: float | None = None
    turned_at: float = field(default_factory=time.monotonic)
    renewal_turned_at: Callable[[], float] | None = None

    def turn(self) -> None:
        self.turned_at = self.clock()

    def beat(self) -> None:
        self.heartbeat_at = self.clock()

    def unready(self) -> str | None:
        if not self.registered or self.heartbeat_at is None:
            return "not registered"
        age = self.clock() - self.heartbeat_at
        return f"no heartbeat reached the store for {age:.0f} s" if age > self.ready_seconds else None

    def dead(self) -> str | None:
        age = self.clock() - self.turned_at
        if age > self.live_seconds:
            return f"the main loop has not turned for {age:.0f} s"
        if self.renewal_turned_at is not None:
            age = self.clock() - self.renewal_turned_at()
            if age > self.live_seconds:
                return f"the renewal thread has not turned for {age:.0f} s"
        return None


class HealthServer:
    def __init__(self, pulse: Pulse, port: int, host: str = "0.0.0.0") -> None:  # noqa: S104 - the kubelet probes the pod's address
        self._pulse = pulse
        self._metrics = make_wsgi_app(metrics.REGISTRY)
        metrics.LOOP_AGE.set_function(lambda: pulse.clock() - pulse.turned_at)
        self._server = make_server(host, port, self._answer, ThreadingWSGIServer, _Quiet)
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="slackwater-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/readyz":
                return _verdict(self._pulse.unready(), start_response)
            case "/livez":
                return _verdict(self._pulse.dead(), start_response)
            case "/metrics":
                return self._metrics(environ, start_response)  # type: ignore[no-any-return]
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"readyz, livez, metrics\n"]


def _verdict(wrong: str | None, start_response: StartResponse) -> Iterable[bytes]:
    start_response(
        "200 OK" if wrong is None else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")]
    )
    return [f"{wrong or 'ok'}\n".encode()]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """A probe every few seconds is no news."""
