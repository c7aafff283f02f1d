"""A lock between processes, freed by the kernel when its holder dies.

Rule: a lock file may be removed only by its holder, and who waited for a removed file waits again for the new one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.shell import say


@contextlib.contextmanager
def held(path: Path, what: str, *, remove: bool = False) -> Iterator[None]:
    """Hold the lock at `path`; say so once if another holds it. `remove` leaves no file behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = _take(path, what)
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(fd)


def _take(path: Path, what: str) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process: {what}")
            fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd
        os.close(fd)
