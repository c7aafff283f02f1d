"""The processes inside a pod's containers, found as the machine's own process numbers.

Rule: the kernel is asked through the container's control group, from outside; nothing runs in the pod for it, so a
stopped or starved container is found as well as a healthy one.
"""

from pathlib import Path
from typing import Any

from tests.cluster import cgroups, units
from tests.cluster.layout import Layout
from tests.cluster.shell import ClusterError


def of_container(lay: Layout, pod: dict[str, Any], container: str | None) -> set[int]:
    """All processes of a running container (the pod's first one unless named)."""
    node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    wanted = container or pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses", [])
    ids = [s["containerID"].rpartition("/")[2] for s in statuses if s["name"] == wanted and s.get("containerID")]
    top = cgroups.listing() / units.group(lay, node)
    for found in (f for i in ids for f in top.glob(f"kubepods/**/pod{uid}/{i}")):
        alive = {p for p in cgroups.pids(str(found.relative_to(cgroups.listing()))) if not cgroups.is_zombie(p)}
        if alive:
            return alive
    raise ClusterError(f"container {wanted} of pod {pod['metadata']['name']} has no process on {node}")


def main_of(pids: set[int]) -> int:
    """The one that is process 1 of its pid namespace; of a pod that shares the node's, the oldest."""
    return next((p for p in sorted(pids) if numbers(p)[-1:] == ["1"]), min(pids))


def numbers(pid: int) -> list[str]:
    """The process's number in each pid namespace that it is in, the machine's first; empty once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
