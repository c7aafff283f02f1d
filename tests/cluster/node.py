"""One node: a machine in all that matters to Kubernetes, made of namespaces.

Rule: what a node writes lies under its own folder (bound over /var/lib and /var/log) or in its own /run; the
machine's files and kernel settings stay as they were. Its first process dead means the node is off.
"""

from pathlib import Path

from tests.cluster import cgroups, config, controlplane, layout, netns, pki, processes, store, units
from tests.cluster.layout import Layout
from tests.cluster.shell import ClusterError, run, wait_until

INIT = """
set -e
mount --make-rshared /
hostname {node}
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
mount --bind {root}/lib /var/lib
mount --bind {root}/log /var/log
# The kubelet wants these kernel settings and would set them for the whole machine: show it what it wants to see.
for want in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  name=${{want%=*}}
  mkdir -p /run/sysctl/${{name%/*}}
  echo ${{want#*=}} > /run/sysctl/$name
  mount --bind /run/sysctl/$name /proc/sys/$name
done
# As long as the node is on, nobody may clear away the image store that its layers point to.
exec 9< {store}/manifest.json
flock --shared 9
echo $$ > /run/init
# bash reaps every orphan of the pid namespace while it waits.
sleep infinity & wait
"""


def prepare(lay: Layout, node: str, images: Path) -> None:
    """The node's files, identity and a containerd root that has the images already."""
    home = lay.node_dir(node)
    for folder in ("lib", "log", "cni", "pods", "plugins"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    ip = layout.node_ip(node)
    pki.make_user(lay, node, f"/O=system:nodes/CN=system:node:{node}", f"DNS:{node},IP:{ip}")
    (home / "cni" / "10-pods.conflist").write_text(config.cni(node, home))
    (home / "containerd.toml").write_text(config.containerd(home))
    (home / "kubelet.json").write_text(config.kubelet(lay, node))
    (home / "init.sh").write_text(INIT.format(node=node, root=home, store=images))
    store.clone(images, home / "containerd")


def boot(lay: Layout, node: str, bin_dir: Path) -> None:
    """Network, control group, namespaces, containerd; returns when containerd answers."""
    home = lay.node_dir(node)
    netns.make_host(lay, node)
    cgroups.make(units.group(lay, node))
    units.start(
        lay,
        f"{node}.init",
        [
            "unshare",
            "--pid",
            "--mount",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            home / "init.sh",
        ],
        bin_dir=bin_dir,
        enter=["nsenter", f"--net={lay.netns_path(node)}"],
    )
    wait_until(lambda: _init_ready(lay, node), f"{node} of {lay.instance} has its namespaces", within=20)
    start_unit(lay, node, "containerd", bin_dir, "containerd", "--config", str(home / "containerd.toml"))
    socket = home / "containerd.sock"

    def answers() -> bool:
        units.must_run(lay, f"{node}.containerd")
        return socket.exists() and bool(
            run(bin_dir / "ctr", "-a", socket, "version", check=False, timeout=10).count("Server")
        )

    wait_until(answers, f"containerd of {node} answers", within=30)


def join(lay: Layout, node: str, bin_dir: Path) -> None:
    """kubelet and kube-proxy; the API server should answer by now, or their first tries are lost."""
    start_kubelet(lay, node, bin_dir)
    start_unit(lay, node, "kube-proxy", bin_dir, *controlplane.proxy_argv(lay, node))


def start_kubelet(lay: Layout, node: str, bin_dir: Path) -> None:
    home = lay.node_dir(node)
    argv = [
        "kubelet",
        f"--config={home / 'kubelet.json'}",
        f"--kubeconfig={lay.kubeconfig(node)}",
        f"--hostname-override={node}",
        f"--root-dir={home / 'kubelet'}",
        f"--node-ip={layout.node_ip(node)}",
    ]
    start_unit(lay, node, "kubelet", bin_dir, *argv)


def start_unit(lay: Layout, node: str, name: str, bin_dir: Path, *argv: str) -> None:
    units.start(lay, f"{node}.{name}", argv, bin_dir=bin_dir, enter=enter_argv(lay, node))


def enter_argv(lay: Layout, node: str) -> list[str]:
    return ["nsenter", f"--target={init_pid(lay, node)}", "--mount", "--uts", "--ipc", "--net", "--pid"]


def init_pid(lay: Layout, node: str) -> int:
    """The host's number of the node's process 1."""
    for pid in units.pids(lay, f"{node}.init"):
        if processes.numbers(pid) == [str(pid), "1"]:
            return pid
    raise ClusterError(f"{node} of {lay.instance} is off")


def is_on(lay: Layout, node: str) -> bool:
    return units.running(lay, f"{node}.init")


def cut_power(lay: Layout, node: str) -> None:
    """Off at once: the wire first, so that no dying process can say goodbye to a peer."""
    if not is_on(lay, node):
        raise ClusterError(f"{node} of {lay.instance} is off already")
    netns.unplug(lay, node)
    for group in _groups(lay, node):
        cgroups.kill(group)
    cgroups.remove(units.group(lay, node))
    netns.delete_host(lay, node)


def _groups(lay: Layout, node: str) -> list[str]:
    return [
        units.group(lay, u)
        for u in (f"{node}.init", f"{node}.containerd", f"{node}.kubelet", f"{node}.kube-proxy", node)
    ]


def _init_ready(lay: Layout, node: str) -> bool:
    units.must_run(lay, f"{node}.init")
    try:
        return Path(f"/proc/{init_pid(lay, node)}/root/run/init").exists()
    except ClusterError:
        return False
