"""What an instance has left on the machine, as the kernel and the file system know it.

Rule: found by other means than `down` uses: by environment, by the text of mount tables, by names anywhere.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import cgroups, lifecycle
from tests.cluster.layout import Layout

OUTSIDE = (
    *("/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"),
    *("/opt/cni", "/opt/containerd", "/etc/cni", "/run/containerd", "/run/flannel", "/usr/libexec/kubernetes"),
)
"""Where these servers write on a machine that is theirs."""
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def of(lay: Layout) -> list[str]:
    return sorted([*_processes(lay), *_mounts(lay), *_names(lay)])


def machine() -> dict[str, str]:
    """Files and kernel settings of the machine itself that a careless node would change."""
    settings = {name: Path("/proc/sys", name).read_text().strip() for name in SETTINGS}
    return settings | {path: "exists" for path in OUTSIDE if Path(path).exists()}


def _processes(lay: Layout) -> Iterator[str]:
    marks = (f"SLACKWATER_CLUSTER={lay.instance}\0", f"{lay.root}/", f"{lay.name}-", f"/{lay.name}/")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = "".join((entry / f).read_text(errors="replace") + "\0" for f in ("environ", "cmdline", "cgroup"))
            except OSError:
                continue
            if any(mark in text for mark in marks) and not cgroups.is_zombie(int(entry.name)):
                yield f"process {entry.name}: {text[-300:]}"


def _mounts(lay: Layout) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f"{lay.root}/" in line or f"{lay.name}-" in line:
            yield f"mount {line}"


def _names(lay: Layout) -> Iterator[str]:
    for top in (Path("/run/netns"), lay.root, lifecycle.lock_path(lay)):
        found = list(top.glob(f"{lay.name}-*")) if top.name == "netns" else [top]
        yield from (f"file {p}" for p in found if p.exists())
    for folder, names, _ in os.walk(cgroups.FS):
        yield from (f"control group {folder}/{n}" for n in names if n == lay.name)
