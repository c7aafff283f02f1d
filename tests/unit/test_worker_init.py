"""Process 1: forwards signals, reaps orphans, and leaves with the worker's exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Outside a container nobody may be process 1; a subreaper is given the orphans all the same.
HEAD = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
from slackwater.init import fork_and_watch
init = os.getpid()
fork_and_watch()
def say(text):
    print(text, flush=True)
"""


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def exists(pid: int) -> bool:
    """Also as a zombie: that still takes signal 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_worker_and_its_exit_code_is_passed_on(number: signal.Signals) -> None:
    code = f"""
signal.signal({int(number)}, lambda *_: (say("told"), os._exit(3)))
say("ready")
while True:
    signal.pause()
"""
    with started(code) as process:
        assert line(process) == "ready"
        process.send_signal(number)
        assert line(process) == "told"
        assert process.wait(10) == 3


def test_a_worker_that_is_killed_by_a_signal_shows_as_the_shell_would_show_it() -> None:
    with started("os.kill(os.getpid(), signal.SIGKILL)") as process:
        assert process.wait(10) == 128 + signal.SIGKILL


def test_orphans_are_reaped_and_the_workers_own_children_are_not() -> None:
    code = """
own = os.fork()
if own == 0:
    orphan = os.fork()
    if orphan == 0:
        time.sleep(0.1)
        os._exit(0)
    say(orphan)
    os._exit(5)
say(os.waitstatus_to_exitcode(os.waitpid(own, 0)[1]))
sys.stdin.readline()
os._exit(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", HEAD + code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        orphan = int(line(process))
        assert line(process) == "5"
        while exists(orphan):
            assert process.poll() is None
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(10) == 0
