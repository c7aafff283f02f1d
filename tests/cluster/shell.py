"""Running programs and waiting for them.

Rule: every wait has a deadline and returns at the signal; every failure carries the output that explains it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
START = time.monotonic()


class ClusterError(Exception):
    """The harness could not do what was asked; the message says what to look at."""


def say(text: str) -> None:
    """One line of progress with the time since the start."""
    print(f"[{time.monotonic() - START:6.1f}s] {text}", file=sys.stderr, flush=True)


def run(
    *argv: str | Path,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    timeout: float | None = None,
) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        [str(a) for a in argv], input=stdin, env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def script(text: str) -> None:
    """A few shell lines that succeed together, for sequences of `ip` commands: one process per line would cost."""
    run("sh", "-euc", text)


def stream(
    argv: Sequence[str | Path], *, only: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run a long program and show its lines (`only` those with this in them) as progress while it works."""
    lines: list[str] = []
    command = [str(a) for a in argv]
    pipe, joined = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, env=env, cwd=cwd, text=True, stdout=pipe, stderr=joined) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.strip() and only in line:
                say(f"  {' '.join(line.split())[:110]}")
    if process.returncode:
        raise ClusterError(f"{' '.join(command)}: exit status {process.returncode}\n{''.join(lines[-30:])}")


def wait_until(probe: Callable[[], T], what: str, *, within: float, every: float = 0.05) -> T:
    """Ask until the answer is truthy; the last answer is in the error when time runs out."""
    end = time.monotonic() + within
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise ClusterError(f"not within {within:g} s: {what} (last answer: {answer!r})")
        time.sleep(every)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log file, for an error message."""
    if not log.exists():
        return f"(no {log})"
    return "\n".join([f"--- {log}", *log.read_text(errors="replace").splitlines()[-lines:]])


def require_root() -> None:
    """Namespaces, mounts and cgroups need root; say so before the first half-made thing."""
    if os.geteuid():
        raise ClusterError("the cluster harness makes namespaces, mounts and cgroups: run it as root")
