"""Network namespaces: the wires of an instance.

Rule: no interface of the machine itself is touched; all traffic stays between namespaces named after the instance.
`cp` holds a bridge; each node hangs on it by one veth, so cutting a node's network is pulling it out of the bridge.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.cluster import layout
from tests.cluster.layout import Layout
from tests.cluster.shell import run, script

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def make_switch(lay: Layout) -> None:
    """The namespace `cp` with the bridge, and routes to every pod network behind the nodes that may come."""
    ns = lay.netns("cp")
    script(f"""
        ip netns add {ns}
        ip -n {ns} link set lo up
        ip -n {ns} link add br0 type bridge
        ip -n {ns} addr add {layout.BRIDGE_IP}/24 dev br0
        ip -n {ns} link set br0 up
        ip -n {ns} route add {layout.SERVICE_NET} dev br0
        nsenter --net={lay.netns_path("cp")} sh -euc '
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects'
        {_pod_routes(ns, "cp")}
    """)


def make_host(lay: Layout, node: str) -> None:
    """A node's namespace, its wire into the bridge, and direct routes to the other nodes' pods."""
    ns, cp, ip = lay.netns(node), lay.netns("cp"), layout.node_ip(node)
    script(f"""
        ip netns add {ns}
        ip -n {ns} link set lo up
        ip link add v-{node} netns {cp} type veth peer name eth0 netns {ns}
        ip -n {cp} link set v-{node} master br0 up
        ip -n {ns} addr add {ip}/24 dev eth0
        ip -n {ns} link set eth0 up
        ip -n {ns} route add default via {layout.BRIDGE_IP}
        nsenter --net={lay.netns_path(node)} sh -euc 'echo 1 > /proc/sys/net/ipv4/ip_forward'
        {_pod_routes(ns, node)}
    """)


def _pod_routes(ns: str, host: str) -> str:
    """One `ip -batch` for all nodes that there could be. Going through cp instead would make it send redirects."""
    others = [n for i in range(1, layout.MAX_NODES + 1) if (n := layout.node_name(i)) != host]
    lines = "".join(f"route add {layout.pod_subnet(n)} via {layout.node_ip(n)}\n" for n in others)
    return f"ip -n {ns} -batch - <<'ROUTES'\n{lines}ROUTES"


def unplug(lay: Layout, node: str) -> None:
    """Pull the node's wire out of the bridge: packets vanish, and the node sees no carrier go away."""
    run("ip", "-n", lay.netns("cp"), "link", "set", f"v-{node}", "nomaster")


def plug(lay: Layout, node: str) -> None:
    run("ip", "-n", lay.netns("cp"), "link", "set", f"v-{node}", "master", "br0")


def delete_host(lay: Layout, node: str) -> None:
    """The wire first and by itself: it would stay as long as any late socket keeps the namespace."""
    run("ip", "-n", lay.netns("cp"), "link", "del", f"v-{node}")
    run("ip", "netns", "del", lay.netns(node))


def existing(lay: Layout) -> list[str]:
    """Names of the instance's namespaces that there are now."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(p.name for p in Path("/run/netns").iterdir() if p.name.startswith(f"{lay.name}-"))
    return []


def enter(path: Path) -> None:
    """Move the calling thread into a namespace; threads it starts later are born there (os.setns comes with 3.12)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


@contextlib.contextmanager
def inside(path: Path) -> Iterator[None]:
    """The calling thread is in the namespace for the length of the block."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(path)
        try:
            yield
        finally:
            enter(Path(f"/proc/self/fd/{home}"))
    finally:
        os.close(home)


def call(path: Path, work: Callable[[], T]) -> T:
    """Do the work in a thread of its own inside the namespace and return its result."""
    result: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            enter(path)
            result.append(work())
        except BaseException as error:  # handed to the caller below, whatever it is
            failure.append(error)

    thread = threading.Thread(target=body, name=f"in {path.name}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
