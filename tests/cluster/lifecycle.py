"""Bringing an instance up and taking it down.

Rule: `down` asks the kernel what belongs to the instance and removes that; it reads no record, so it cleans up after
a crash at any line of `up` as well as after a good run. `up` begins with `down`.
"""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import api, cgroups, controlplane, images, layout, netns, node, store, toolchain
from tests.cluster.layout import Layout
from tests.cluster.locks import held
from tests.cluster.pool import Image
from tests.cluster.shell import require_root, run, say, wait_until

MANIFESTS = Path(__file__).with_name("manifests")


def lock_path(lay: Layout) -> Path:
    return layout.state_root() / f".{lay.instance}.lock"


def up(lay: Layout, nodes: int, extra: Sequence[Image] = ()) -> None:
    """A fresh cluster whose nodes are Ready, have the images, and resolve names."""
    require_root()
    if not 1 <= nodes <= layout.MAX_NODES:
        raise ValueError(f"nodes: 1 to {layout.MAX_NODES}, not {nodes}")
    bin_dir = toolchain.binaries()
    generation = store.ensure([*images.system(bin_dir), *extra], bin_dir)
    with held(lock_path(lay), f"{lay.instance} is being changed"):
        _clean(lay)
        say(f"starting {lay.instance}: {nodes} nodes, {len(extra)} images of ours")
        lay.root.mkdir(parents=True)
        with cgroups.joined(f"{lay.name}/harness"):
            _start(lay, [layout.node_name(i) for i in range(1, nodes + 1)], bin_dir, generation)
            _write_wrappers(lay, bin_dir)
    say(f"{lay.instance} is up: {lay.root}/kubectl get nodes")


def _start(lay: Layout, names: list[str], bin_dir: Path, generation: Path) -> None:
    controlplane.start_api(lay, bin_dir)

    def boot(name: str) -> None:
        node.prepare(lay, name, generation)
        node.boot(lay, name, bin_dir)

    with ThreadPoolExecutor() as pool:
        booting = [pool.submit(boot, name) for name in names]
        controlplane.finish(lay, bin_dir)
        say("API server answers")
        applying = pool.submit(_kubectl, lay, bin_dir, "apply", "-f", MANIFESTS / "coredns.yaml")
        for name, started in zip(names, booting, strict=True):
            started.result()
            node.join(lay, name, bin_dir)
        controlplane.start_proxy(lay, bin_dir)
        applying.result()
    wait_until(lambda: api.ready_nodes(lay) == set(names), f"nodes Ready: {names}", within=60)
    say("nodes Ready")
    wait_until(lambda: _dns_pods(lay) == len(names), "cluster DNS runs on every node", within=60)


def _dns_pods(lay: Layout) -> int:
    pods = api.items(lay, "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dcoredns")
    return sum(api.condition(p, "Ready") for p in pods)


def _kubectl(lay: Layout, bin_dir: Path, *argv: str | Path) -> str:
    enter = ["nsenter", f"--net={lay.netns_path('cp')}"]
    return run(*enter, bin_dir / "kubectl", f"--kubeconfig={lay.kubeconfig()}", *argv)


def _write_wrappers(lay: Layout, bin_dir: Path) -> None:
    """Commands for a person, who is outside the instance's network."""
    enter = f"exec nsenter --net={lay.netns_path('cp')}"
    for name, command in {
        "kubectl": f'{enter} {bin_dir}/kubectl --kubeconfig={lay.kubeconfig()} "$@"',
        "enter": f'export KUBECONFIG={lay.kubeconfig()}\nPATH={bin_dir}:$PATH {enter} "$@"',
    }.items():
        path = lay.root / name
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)


def down(lay: Layout) -> None:
    require_root()
    with held(lock_path(lay), f"{lay.instance} is being changed", remove=True):
        if _clean(lay):
            say(f"{lay.instance} is down")


def _clean(lay: Layout) -> bool:
    """Processes, mounts, networks, groups, files, in that order: each would be kept busy by the one before."""
    found = (
        lay.root.exists() or bool(netns.existing(lay)) or any((t / lay.name).exists() for t in cgroups.hierarchies())
    )
    cgroups.kill(lay.name)
    for mount in _mounts_under(lay.root):
        run("umount", "--lazy", mount)
    for name in netns.existing(lay):
        run("ip", "netns", "del", name)
    cgroups.remove(lay.name)
    if lay.root.exists():
        shutil.rmtree(lay.root)
    return found


def _mounts_under(root: Path) -> list[str]:
    """Deepest first. Nodes mount in namespaces of their own, so there are none unless something went very wrong."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((p for p in points if Path(p).is_relative_to(root)), key=len, reverse=True)
