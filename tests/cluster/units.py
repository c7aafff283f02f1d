"""Units: the long-running processes of an instance.

Rule: a unit is a control group; it runs exactly as long as its group has a process. It belongs to no parent that
could die before it, and it gets a clean environment, so a proxy or a token of the caller never reaches a server.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.layout import Layout
from tests.cluster.shell import ClusterError, tail

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def group(lay: Layout, unit: str) -> str:
    return f"{lay.name}/{unit}"


def start(
    lay: Layout, unit: str, argv: Sequence[str | Path], *, bin_dir: Path, enter: Sequence[str | Path] = ()
) -> None:
    """Start a unit; `enter` is the command in front that brings it into its namespaces."""
    if running(lay, unit):
        raise ClusterError(f"{unit} of {lay.instance} runs already")
    cgroups.make(group(lay, unit))
    log = lay.log(unit)
    log.parent.mkdir(parents=True, exist_ok=True)
    procs = str(cgroups.procs_file(group(lay, unit)))
    env = {"PATH": f"{bin_dir}:{SYSTEM_PATH}", "HOME": "/root", "SLACKWATER_CLUSTER": lay.instance}
    with log.open("ab") as out:
        subprocess.run(
            ["sh", "-c", 'echo $$ > "$0" && exec setsid --fork "$@"', procs, *map(str, (*enter, *argv))],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            check=True,
        )


def pids(lay: Layout, unit: str) -> set[int]:
    return {p for p in cgroups.pids(group(lay, unit)) if not cgroups.is_zombie(p)}


def running(lay: Layout, unit: str) -> bool:
    return bool(pids(lay, unit))


def must_run(lay: Layout, unit: str) -> None:
    """Fail with the log's end as soon as a unit is gone, instead of at the end of a wait for it."""
    if not running(lay, unit):
        raise ClusterError(f"{unit} of {lay.instance} ended\n{tail(lay.log(unit))}")


def send(lay: Layout, unit: str, sig: signal.Signals) -> None:
    found = pids(lay, unit)
    if not found:
        raise ClusterError(f"{unit} of {lay.instance} does not run")
    for pid in found:
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, sig)


def stop(lay: Layout, unit: str) -> None:
    cgroups.kill(group(lay, unit))


def names(lay: Layout) -> list[str]:
    """Every unit there was since `up`, running or not."""
    top = cgroups.listing() / lay.name
    return sorted(p.name for p in top.iterdir() if p.is_dir() and "." in p.name) if top.exists() else []
