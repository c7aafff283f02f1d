"""What a test or the demo holds in its hand: one cluster, its kubectl, its addresses and its faults.

Rule: this class only delegates; each thing it can do is a module that can be read alone.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import lifecycle, netns, toolchain
from tests.cluster.faults import Faults
from tests.cluster.layout import Layout
from tests.cluster.pool import Image
from tests.cluster.shell import ClusterError
from tests.cluster.store import load


@dataclass(frozen=True)
class Cluster:
    """A running instance of the harness."""

    layout: Layout

    @classmethod
    def up(cls, instance: str = "demo", *, nodes: int = 3, images: Iterable[Image] = ()) -> "Cluster":
        lay = Layout(instance)
        lifecycle.up(lay, nodes, list(images))
        return cls(lay)

    @classmethod
    def attach(cls, instance: str = "demo") -> "Cluster":
        """The instance that another process brought up."""
        lay = Layout(instance)
        if not (lay.root / "kubectl").exists():
            raise ClusterError(f"{instance} is not up")
        return cls(lay)

    def down(self) -> None:
        lifecycle.down(self.layout)

    @property
    def kubeconfig(self) -> Path:
        """Its server answers only inside the cluster's network: see `joined`."""
        return self.layout.kubeconfig()

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """kubectl's output; raises with its error text unless check is False. Works from any network namespace."""
        done = subprocess.run(
            [self.layout.root / "kubectl", *args], input=stdin, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode:
            raise ClusterError(f"kubectl {' '.join(args)}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        return dict(json.loads(self.kubectl("get", *args, "-o", "json")))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """The calling thread, and threads it starts, are in the cluster's network: pods' and Services' addresses
        answer there (names do not: cluster DNS serves pods). Other threads stay where they are."""
        with netns.inside(self.layout.netns_path("cp")):
            yield

    def service_ip(self, name: str, namespace: str = "default") -> str:
        return str(self.get("service", name, "-n", namespace)["spec"]["clusterIP"])

    @property
    def nodes(self) -> list[str]:
        return sorted(p.parent.name for p in self.layout.root.glob("node*/init.sh"))

    @property
    def faults(self) -> Faults:
        """What can be broken, in the namespace `slackwater`; `faults_in` for another one."""
        return self.faults_in("slackwater")

    def faults_in(self, namespace: str) -> Faults:
        return Faults(self.layout, toolchain.binaries(), namespace)

    def load_images(self, images: Iterable[Image]) -> None:
        """Bring images to every node that is on."""
        loaded = list(images)
        for node in self.nodes:
            home = self.layout.node_dir(node)
            load(loaded, home / "containerd", home / "containerd.sock", toolchain.binaries())
