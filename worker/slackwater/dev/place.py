"""Where a development run keeps things. Rule: without `--data` nothing is left behind; with it, only that folder.

Sockets always lie in a temporary directory of their own, because a socket's path may have 107 characters.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slackwater.errors import InvalidInput

USUAL_PORT = 8080


@dataclass(frozen=True)
class Place:
    data: Path
    """Holds the cluster and the token."""
    sockets: Path
    kept: bool

    @property
    def cluster(self) -> Path:
        return self.data / "postgres"

    def token(self) -> str:
        """The run's token; a kept folder keeps it, so that a client's settings stay right."""
        file = self.data / "token"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(24) + "\n")
        return file.read_text().strip()


@contextmanager
def opened(data: Path | None) -> Iterator[Place]:
    sockets = Path(tempfile.mkdtemp(prefix="swdev-"))
    try:
        folder = sockets / "data" if data is None else data.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        yield Place(folder, sockets, kept=data is not None)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def free_port(host: str, wanted: int | None) -> int:
    """The port asked for, else the usual one, else any that is free. Raises InvalidInput if the one asked for is not
    free.
    """
    for port in (USUAL_PORT, 0) if wanted is None else (wanted,):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise InvalidInput("--port", None, f"{wanted} is taken or not allowed")
