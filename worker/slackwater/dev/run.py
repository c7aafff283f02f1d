"""A development run from start to end. Rule: whatever ends it, all that it started has ended before it returns.

Order of the start: servers; then gateway and worker while the tables are made, since importing takes them longer than
that. Order of the stop: backwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from slackwater.dev.place import Place, free_port, opened
from slackwater.dev.screen import Screen
from slackwater.dev.watching import Watch, roots
from slackwater.dev.workers import Workers
from slackwater.embedded import EmbeddedPostgres, EmbeddedValkey
from slackwater.embedded.process import Child

TURN_SECONDS = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_OURS = ("DATABASE_DIRECT_URL", "SLACKWATER_POD_UID", "SLACKWATER_RUN_DIR", "SLACKWATER_TOKENS_FILE")
"""Of a deployment whose environment this shell happens to have."""


@dataclass(frozen=True)
class Options:
    modules: tuple[str, ...]
    data: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    queues: str = "default"
    concurrency: int = 4
    reload: bool = True


async def develop(options: Options, write: Callable[[str], None]) -> int:
    """Run until a signal, or until a server or the gateway ended by itself. Returns the exit code."""
    screen = Screen(write)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    with opened(options.data) as place:
        port = free_port(options.host, options.port)
        running = asyncio.create_task(_run(options, screen, place, port, stop))
        stopped = asyncio.create_task(stop.wait())
        # A Ctrl-C during the start cancels it; later it is seen by the loop itself.
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not running.done():
            screen.step("stopping")
            running.cancel()
        try:
            return await running
        except asyncio.CancelledError:
            return 0
        finally:
            screen.step(f"stopped; the data stay in {place.data}" if place.kept else "stopped; nothing is left")


async def _run(options: Options, screen: Screen, place: Place, port: int, stop: asyncio.Event) -> int:
    from slackwater import migrations

    async with _servers(screen, place) as (postgres, valkey):
        environment = _environment(options, place, postgres, valkey)
        async with _gateway(options, screen, environment, place, port) as gateway:
            command = [sys.executable, "-m", "slackwater.entry", "worker"]
            workers = Workers(screen, command, environment, place.sockets, clock=time.monotonic)
            watch = Watch(roots(options.modules, _search()) if options.reload else ())
            try:
                await workers.start()
                await asyncio.to_thread(migrations.upgrade, postgres.url)
                screen.step("the tables are ready")
                greeted = False
                while not stop.is_set():
                    if await workers.turn():
                        types = (workers.present.types if workers.present else None) or []
                        screen.step(f"a worker serves {', '.join(types)}")
                        if not greeted:
                            await _answering(options.host, port, gateway)
                            screen.block(_greeting(options, place, port, types, environment))
                            greeted, screen.starting = True, False
                    if changes := watch.changes():
                        screen.step(
                            f"{_names(changes)} changed: a new worker starts, the one before finishes its tasks"
                        )
                        await workers.start()
                    ended = [
                        name
                        for name, over in (
                            ("PostgreSQL", postgres.ended),
                            ("Valkey", valkey.ended),
                            ("the gateway", not gateway.running),
                        )
                        if over
                    ]
                    if ended:
                        screen.step(f"{ended[0]} ended by itself: stopping")
                        return 1
                    await asyncio.sleep(TURN_SECONDS)
                return 0
            finally:
                await workers.stop()


@asynccontextmanager
async def _servers(screen: Screen, place: Place) -> AsyncIterator[tuple[EmbeddedPostgres, EmbeddedValkey]]:
    postgres = EmbeddedPostgres(place.cluster, place.sockets, durable=place.kept)
    valkey = EmbeddedValkey(place.sockets)
    screen.step(f"PostgreSQL and Valkey start in {place.data if place.kept else 'a temporary folder'}")
    try:
        await asyncio.gather(postgres.start(), valkey.start())
        screen.step("they answer")
        yield postgres, valkey
    finally:
        await asyncio.gather(postgres.stop(), valkey.stop())


@asynccontextmanager
async def _gateway(
    options: Options, screen: Screen, environment: dict[str, str], place: Place, port: int
) -> AsyncIterator[Child]:
    command = [sys.executable, "-m", "slackwater.entry", "gateway", "--host", options.host, "--port", str(port)]
    gateway = await Child.start(
        command,
        output=lambda text: _heard(screen, text),
        directory=place.sockets,
        environment=environment,
        death=signal.SIGKILL,
    )
    try:
        yield gateway
    finally:
        await gateway.stop(signal.SIGTERM, patience=10)


def _heard(screen: Screen, text: str) -> None:
    screen.child("gateway", text)


async def _answering(host: str, port: int, gateway: Child) -> None:
    """Until its port takes connections, or it has ended, which the loop then says."""
    while gateway.running:
        with contextlib.suppress(OSError):
            _reader, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(0.02)


def _environment(options: Options, place: Place, postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    defaults = {
        "SLACKWATER_POOL_UID": "dev",
        "SLACKWATER_POOL_NAME": "dev",
        "SLACKWATER_REVISION": "dev",
        "SLACKWATER_POLL_SECONDS": "0.5",
        "SLACKWATER_GATEWAY_DRAIN_SECONDS": "0",
    }
    return {
        **defaults,
        **inherited,
        "DATABASE_URL": postgres.url,
        "REDIS_URL": valkey.url,
        "SLACKWATER_TOKENS": json.dumps({place.token(): {"user": "dev", "admin": True}}),
        "SLACKWATER_TASKS": ",".join(options.modules),
        "SLACKWATER_QUEUES": options.queues,
        "SLACKWATER_CONCURRENCY": str(options.concurrency),
        "SLACKWATER_HEALTH_PORT": "0",
        "PYTHONPATH": os.pathsep.join(_search()),
        "PYTHONUNBUFFERED": "1",
    }


def _search() -> list[str]:
    """Where task modules are looked for: here first, as `python -m` does."""
    return list(dict.fromkeys([str(Path.cwd()), *(entry for entry in sys.path if entry)]))


def _greeting(options: Options, place: Place, port: int, types: list[str], environment: dict[str, str]) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    url, token = f"http://{host}:{port}", place.token()
    body = json.dumps({"type": types[0] if types else "TYPE", "payload": {}})
    return f"""
URL    {url}
token  {token}

curl -s {url}/api/tasks -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d '{body}'
curl -s {url}/api/tasks -H 'Authorization: Bearer {token}'

For the other commands, such as `slackwater task list`:
export DATABASE_URL='{environment["DATABASE_URL"]}' REDIS_URL='{environment["REDIS_URL"]}'

Ctrl-C stops everything.
"""


def _names(changes: list[Path]) -> str:
    shown = ", ".join(path.name for path in changes[:3])
    return shown if len(changes) <= 3 else f"{shown} and {len(changes) - 3} more"
