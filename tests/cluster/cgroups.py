"""Control groups: how the harness finds its processes.

Rule: every process of an instance is born inside the instance's group and its children stay there, so the kernel
itself keeps the list. No pid file can be stale, and a SIGKILL of the harness loses nothing.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.shell import ClusterError

FS = Path("/sys/fs/cgroup")
UNIFIED = (FS / "cgroup.controllers").exists()
"""Version 2: one hierarchy. In version 1 the hierarchy `pids` holds the list and the kubelet needs the others too."""
V1_NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "unified")

SHARES = 16 * 1024
"""Weight of an instance's pods against everything else on the machine, as one group (1,024 is one busy process).
A pod asks for a hundredth of a core, and on a loaded machine it would be kept from renewing its lease for seconds."""


def hierarchies() -> list[Path]:
    return [FS] if UNIFIED else [FS / c for c in V1_NEEDED if (FS / c / "cgroup.procs").exists()]


def listing() -> Path:
    return FS if UNIFIED else FS / "pids"


def make(group: str) -> None:
    """Create the group in every hierarchy. A version 1 cpuset admits nobody until it has cpus and mems."""
    for top in hierarchies():
        path = top
        for part in group.split("/"):
            if UNIFIED:
                with contextlib.suppress(OSError):
                    (path / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids +io")
            parent, path = path, path / part
            path.mkdir(exist_ok=True)
            _weigh(path, top=parent == top)
            if path.is_relative_to(FS / "cpuset"):
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (path / name).write_text((parent / name).read_text())


def _weigh(path: Path, *, top: bool) -> None:
    if top and (path / "cpu.shares").exists():
        (path / "cpu.shares").write_text(str(SHARES))
    if top and (path / "cpu.weight").exists():
        (path / "cpu.weight").write_text(str(SHARES * 100 // 1024))


def procs_file(group: str) -> Path:
    """Writing a pid here moves it into the group. Only the listing hierarchy: the kubelet's accounting is its own."""
    return listing() / group / "cgroup.procs"


def pids(group: str) -> set[int]:
    """Every process in the group and below it, in any hierarchy."""
    return {pid for top in hierarchies() for pid in _pids_under(top / group)}


def _pids_under(top: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(top):
        with contextlib.suppress(OSError):
            yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())


@contextlib.contextmanager
def joined(group: str) -> Iterator[None]:
    """This process is in the group for the length of the block: if it is killed there, its helpers are found."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    home = next(path for _, kinds, path in lines if UNIFIED or kinds == "pids")
    make(group)
    procs_file(group).write_text(str(os.getpid()))
    try:
        yield
    finally:
        procs_file(home.strip("/")).write_text(str(os.getpid()))


def kill(group: str, *, within: float = 10) -> None:
    """SIGKILL everything in the group until nothing is left; a fork that ran ahead is caught by the next look."""
    end = time.monotonic() + within
    while alive := {p for p in pids(group) if not is_zombie(p)}:
        thaw(group)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise ClusterError(f"processes {sorted(alive)} of {group} outlive SIGKILL")
        time.sleep(0.02)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def thaw(group: str) -> None:
    """A frozen process of version 1 does not die of SIGKILL before it is thawed."""
    for folder, _, _ in os.walk(FS / "freezer" / group):
        with contextlib.suppress(OSError):
            (Path(folder) / "freezer.state").write_text("THAWED")


def remove(group: str, *, within: float = 5) -> None:
    """Remove the group in every hierarchy, leaves first; a dead process leaves its group a moment later."""
    end = time.monotonic() + within
    for top in hierarchies():
        while (top / group).exists():
            for folder, _, _ in os.walk(top / group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            if time.monotonic() > end:
                raise ClusterError(f"control group {top / group} can't be removed: {sorted(pids(group))}")
            if (top / group).exists():
                time.sleep(0.02)
