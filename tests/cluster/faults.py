"""Everything that can be broken on purpose, and mended again.

Rule: a fault comes from outside, as real ones do: the victim gets no chance to prepare, and the tests' own way to the
API server stays intact. Each method returns when the fault is in force, not when the cluster has noticed it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import api, netns, node, processes, units
from tests.cluster.layout import Layout
from tests.cluster.shell import ClusterError, run, wait_until


@dataclass(frozen=True)
class Faults:
    """Faults of one instance. `pod` is a name, or `deploy/NAME` for a Deployment's only pod."""

    layout: Layout
    bin_dir: Path
    namespace: str = "slackwater"

    # Nodes

    def power_off(self, name: str) -> None:
        """No process of the node runs on, no packet leaves it; its disk stays."""
        node.cut_power(self.layout, name)

    def power_on(self, name: str) -> None:
        """Boot again from the same disk; returns when the node is Ready."""
        before = self._last_word(name)
        node.boot(self.layout, name, self.bin_dir)
        node.join(self.layout, name, self.bin_dir)
        wait_until(
            lambda: self._last_word(name) != before and name in api.ready_nodes(self.layout),
            f"{name} is Ready again",
            within=60,
        )

    def cut_network(self, name: str) -> None:
        """Packets to and from the node vanish without a word; what runs on it goes on."""
        netns.unplug(self.layout, name)

    def heal_network(self, name: str) -> None:
        netns.plug(self.layout, name)

    def stop_kubelet(self, name: str) -> None:
        """Freeze it: the node goes NotReady while its containers go on."""
        units.send(self.layout, f"{name}.kubelet", signal.SIGSTOP)

    def continue_kubelet(self, name: str) -> None:
        units.send(self.layout, f"{name}.kubelet", signal.SIGCONT)

    def kill_kubelet(self, name: str) -> None:
        units.stop(self.layout, f"{name}.kubelet")

    def start_kubelet(self, name: str) -> None:
        node.start_kubelet(self.layout, name, self.bin_dir)

    # Containers

    def pause(self, pod: str, container: str | None = None) -> None:
        """SIGSTOP to every process of the container: a long garbage collection, a swapped-out machine."""
        self._signal(pod, container, signal.SIGSTOP, whole=True)

    def resume(self, pod: str, container: str | None = None) -> None:
        self._signal(pod, container, signal.SIGCONT, whole=True)

    def kill(self, pod: str, container: str | None = None) -> int:
        """SIGKILL to the container's first process, as the out-of-memory killer does; the kubelet starts it again."""
        return self._signal(pod, container, signal.SIGKILL, whole=False)

    def send(self, pod: str, sig: str, container: str | None = None) -> int:
        """Any signal, by name, to the container's first process."""
        return self._signal(pod, container, signal.Signals[sig], whole=False)

    def _signal(self, pod: str, container: str | None, sig: signal.Signals, *, whole: bool) -> int:
        found = processes.of_container(self.layout, self._pod(pod), container)
        first = processes.main_of(found)
        for pid in sorted(found) if whole else [first]:
            with suppress(ProcessLookupError):  # a child that ended meanwhile
                os.kill(pid, sig)
        return first

    # Traffic

    def block(self, pod: str, service: str) -> None:
        """Drop all packets between the pod and a Service (`NAME` or `NAMESPACE/NAME`), open connections too."""
        self._rules("-I", pod, service)

    def unblock(self, pod: str, service: str) -> None:
        self._rules("-D", pod, service)

    @contextmanager
    def blocked(self, pod: str, service: str) -> Iterator[None]:
        self.block(pod, service)
        try:
            yield
        finally:
            self.unblock(pod, service)

    def _rules(self, change: str, pod: str, service: str) -> None:
        """In the node's FORWARD chain. The address that the connection was opened to tells the Service, whichever
        pod the packets were turned to."""
        body = self._pod(pod)
        address, host = body["status"]["podIP"], body["spec"]["nodeName"]
        space, name = service.split("/") if "/" in service else (self.namespace, service)
        target = self._get(f"/api/v1/namespaces/{space}/services/{name}")["spec"]["clusterIP"]
        for way in ("-s", "-d"):
            match = [way, address, "-m", "conntrack", "--ctorigdst", target, "-j", "DROP"]
            run(*node.enter_argv(self.layout, host), "iptables", "-w", change, "FORWARD", *match)

    # Looking things up

    def _last_word(self, name: str) -> str:
        lease = self._get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
        return str(lease["spec"]["renewTime"])

    def _pod(self, name: str) -> dict[str, Any]:
        kind, _, rest = name.rpartition("/")
        if not kind:
            return self._get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        if kind not in ("deploy", "deployment"):
            raise ClusterError(f"{name}: a pod's name, or deploy/NAME")
        body = self._get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{rest}")
        selector = "%2C".join(f"{k}%3D{v}" for k, v in body["spec"]["selector"]["matchLabels"].items())
        pods = api.items(self.layout, f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}")
        running = [p for p in pods if p["status"].get("phase") == "Running"]
        if len(running) != 1:
            raise ClusterError(f"{name} has {len(running)} running pods, not one")
        return running[0]

    def _get(self, path: str) -> dict[str, Any]:
        found = api.one(self.layout, path)
        if found is None:
            raise ClusterError(f"there is no {path} in {self.layout.instance}")
        return found
