"""Where the demo runs: the harness's cluster by default, or `CONTEXT=name` of your own kubeconfig.

Rule: the cluster is left for looking at; only `make demo-down` removes it, and never one of yours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.demo.screen import Screen
from tests.kit.forward import Forwarded, Inside, Reach
from tests.kit.kube import Access, Kube

INSTANCE = "demo"


@contextmanager
def cluster(screen: Screen) -> Iterator[tuple[Kube, Reach]]:
    """The cluster with the demo's images on it, and the way to its Services."""
    context = os.environ.get("CONTEXT")
    if context:
        screen.step(f"the cluster of context {context}; its nodes must have the images (see README)")
        path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        kube = Kube(Access(path, context))
        reach: Reach = Forwarded(kube)
        try:
            yield kube, reach
        finally:
            reach.close()
        return
    from tests.cluster import images  # root and Linux only, so not for CONTEXT
    from tests.cluster.cluster import Cluster

    screen.step("images (first time: some minutes)")
    built = images.ours()
    screen.step("a cluster of three nodes on this machine (first time: about 6 minutes of building)")
    harness = Cluster.up(INSTANCE, nodes=3, images=built)
    with harness.joined():
        kube = Kube(Access(harness.kubeconfig))
        yield kube, Inside(kube)


def down(screen: Screen) -> None:
    """Remove what the demo left: the harness's cluster, or of another cluster what was installed."""
    context = os.environ.get("CONTEXT")
    if context:
        path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        screen.step(f"removing the quickstart from {context}")
        Kube(Access(path, context)).kubectl("delete", "-k", "manifests/local", "--ignore-not-found", timeout=600)
        return
    from tests.cluster.cluster import Cluster
    from tests.cluster.layout import Layout

    screen.step("removing the demo's cluster")
    Cluster(Layout(INSTANCE)).down()


def tell_how_to_look(screen: Screen) -> None:
    if os.environ.get("CONTEXT"):
        kubectl = f"kubectl --context {os.environ['CONTEXT']}"
    else:
        from tests.cluster.layout import Layout

        kubectl = str(Layout(INSTANCE).root / "kubectl")
    screen.note(f"The cluster is still there:  {kubectl} -n slackwater get wp,pods -o wide")
    screen.note(f"and it can tell its story:   {kubectl} -n slackwater describe wp renders")
    screen.note("Remove it with:              make demo-down")
