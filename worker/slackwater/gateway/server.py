"""The gateway as a process. Rule: after SIGTERM it stops being ready, then stops accepting, then ends with code 0.

Works as process 1 without a shell. Streams are closed at the stop; clients resume elsewhere by their last id.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from types import FrameType

import uvicorn

from slackwater.delivery.round import deliver_forever
from slackwater.gateway.app import create_app
from slackwater.gateway.auth import Tokens
from slackwater.gateway.context import Gateway
from slackwater.gateway.settings import GatewaySettings
from slackwater.gateway.sweeping import sweep_forever
from slackwater.logging import configure
from slackwater.redis_client import redis_client
from slackwater.settings import Constants, DeliverySettings, StoreSettings, load
from slackwater.slots import Slots
from slackwater.store import Store
from slackwater.store.url import plain_url


class Server(uvicorn.Server):
    """Gives load balancers time to notice before the socket closes; a second signal waits no longer."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._loop = loop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.draining or sig == signal.SIGINT:
            super().handle_exit(sig, frame)
            return
        self._gateway.draining = True
        self._loop.call_soon_threadsafe(
            lambda: self._loop.call_later(
                self._gateway.settings.drain_seconds, lambda: uvicorn.Server.handle_exit(self, sig, None)
            )
        )


def run(host: str, port: int) -> None:
    """Serve until SIGTERM. Raises SettingsError for what the environment lacks."""
    settings, servers, delivery = load(GatewaySettings), load(StoreSettings), load(DeliverySettings)
    tokens = settings.load_tokens()
    # Before serving, and once more when uvicorn is done: it raises the signal that it caught again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_serve(host, port, Loaded(settings, servers, delivery, tokens)))


@dataclass(frozen=True)
class Loaded:
    """All that the environment says, read before anything starts."""

    settings: GatewaySettings
    servers: StoreSettings
    delivery: DeliverySettings
    tokens: Tokens


async def _serve(host: str, port: int, loaded: Loaded) -> None:
    settings, servers = loaded.settings, loaded.servers
    constants, url = load(Constants), servers.database_url.get_secret_value()
    store = Store.connect(url, constants=constants, pool_size=settings.pool_size)
    slots = redis_client(servers.redis_url.get_secret_value(), constants)
    configure(level=settings.log_level)
    app = create_app(
        settings=settings, store=store, slots=slots, tokens=loaded.tokens, listen_url=plain_url(servers.listen_url)
    )
    sweeping = asyncio.create_task(
        sweep_forever(
            store,
            Slots(slots, prefix=servers.slot_prefix, constants=constants),
            seconds=settings.sweep_seconds,
        )
    )
    side = [sweeping]
    if settings.deliver:
        side.append(asyncio.create_task(deliver_forever(store, loaded.delivery)))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    try:
        await Server(config, app.state.gateway, asyncio.get_running_loop()).serve()
    finally:
        for task in side:
            task.cancel()
        await asyncio.gather(*side, return_exceptions=True)
        await slots.aclose()
        await store.close()
