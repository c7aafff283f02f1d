"""Process 1 of a container: forwards signals to the worker, reaps what nobody else does, and leaves with its exit code.

Rule: the worker itself is never process 1. The kernel shields process 1 from its own SIGKILL, and gives it every
orphan of the container; a worker that reaped those would steal the exit codes of its tasks' own children.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def become_init_if_first() -> None:
    """Returns in the process that is to be the worker. Call it before any thread or event loop exists."""
    if os.getpid() == 1:
        fork_and_watch()


def fork_and_watch() -> None:
    # Blocked until the handlers stand, so that a signal at start is neither lost nor fatal.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    worker = os.fork()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return
    for number in FORWARDED:
        signal.signal(number, lambda received, _frame: _forward(worker, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    _reap_until(worker)


def _forward(worker: int, number: int) -> None:
    try:
        os.kill(worker, number)
    except ProcessLookupError:
        return


def _reap_until(worker: int) -> NoReturn:
    while True:
        pid, status = os.wait()
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            # The kernel now ends whatever is left in the container.
            os._exit(code if code >= 0 else 128 - code)
