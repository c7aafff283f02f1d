"""Where the demo runs: the harness's cluster by default, or `CONTEXT=name` of your own kubeconfig.

Rule: the cluster is left for looking at; only `make demo-down` removes it, and never one of yours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.demo import install
from scripts.demo.screen import Screen
from tests.kit.forward import Forwarded, Inside, Reach
from tests.kit.kube import Access, Kube

INSTANCE = "demo"


@contextmanager
def cluster(screen: Screen) -> Iterator[tuple[Kube, Reach]]:
    """The cluster with the demo's images on it, and the way to its Services."""
    context = os.environ.get("CONTEXT")
    if context:
        screen.step(f"the cluster of context {context}; its nodes must have the images (docs/install.md)")
        kube = Kube(_of_yours())
        install.refuse_if_not_ours(kube)
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
    """Remove what the demo left: the harness's cluster, or of a cluster of yours what the demo installed there."""
    if not os.environ.get("CONTEXT"):
        from tests.cluster.cluster import Cluster
        from tests.cluster.layout import Layout

        screen.step("removing the demo's cluster")
        Cluster(Layout(INSTANCE)).down()
        return
    kube = Kube(_of_yours())
    install.refuse_if_not_ours(kube)
    screen.step(f"removing the demo's namespace {kube.namespace}; its pods drain first")
    kube.kubectl("delete", "namespace", kube.namespace, "--ignore-not-found", timeout=900)
    left = "crd/workerpools.slackwater.dev clusterrole,clusterrolebinding,priorityclass/slackwater-operator"
    screen.tell(f"Left in place, since other namespaces may use them: {left}")


def tell_how_to_look(screen: Screen) -> None:
    context = os.environ.get("CONTEXT")
    if context:
        kubectl = f"kubectl --context {context}"
    else:
        from tests.cluster.layout import Layout

        kubectl = str(Layout(INSTANCE).root / "kubectl")
    screen.tell(f"The cluster is still there:  {kubectl} -n slackwater get wp,pods -o wide")
    screen.tell(f"and it can tell its story:   {kubectl} -n slackwater events --for workerpool/renders")
    screen.tell(f"Remove it with:              {f'CONTEXT={context} ' if context else ''}make demo-down")


def _of_yours() -> Access:
    context = os.environ["CONTEXT"]
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.exists():
        raise install.Refused(f"CONTEXT={context}: there is no kubeconfig at {path} (KUBECONFIG names another)")
    return Access(path, context)
