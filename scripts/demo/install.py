"""Applying manifests/local, as the README tells a user to. Rule: nothing is installed that the manifests don't hold."""

from __future__ import annotations

from kubernetes.client import ApiException

from scripts.demo.screen import Screen
from tests.kit.kube import Kube
from tests.kit.waiting import until

OURS = "slackwater.dev/made-by"


class Refused(Exception):
    """The demo does not go on; the message says what is in the way."""


def refuse_if_not_ours(kube: Kube) -> None:
    """Raises Refused when the namespace exists and no demo made it: applying would overwrite its secrets."""
    try:
        found = kube.core.read_namespace(kube.namespace)
    except ApiException as error:
        if error.status == 404:
            return
        raise
    labels = (found.metadata.labels if found.metadata else None) or {}
    if labels.get(OURS) != "demo":
        raise Refused(f"namespace {kube.namespace} is there already and this demo did not make it; nothing was changed")


def install(kube: Kube, screen: Screen, manifests: str = "manifests/local") -> None:
    """Server-side apply; the second round is for the sample pool, whose kind the first round has just defined."""
    screen.step(f"kubectl apply --server-side -k {manifests}")

    def applied() -> bool:
        kube.kubectl("apply", "--server-side", "--force-conflicts", "-k", manifests)
        return True

    until("the manifests applied", 60, applied, every=1)
    kube.kubectl("label", "namespace", kube.namespace, f"{OURS}=demo", "--overwrite")
    for kind, name in (
        ("deployment", "postgres"),
        ("deployment", "redis"),
        ("job", "slackwater-migrate"),
        ("deployment", "provider"),
        ("deployment", "slackwater-gateway"),
        ("deployment", "slackwater-operator"),
    ):
        wanted = "complete" if kind == "job" else "available"
        screen.note(f"waiting for {kind} {name}")
        try:
            kube.kubectl("wait", f"--for=condition={wanted}", f"{kind}/{name}", "--timeout=120s", timeout=140)
        except RuntimeError as error:
            said = kube.kubectl("logs", f"{kind}/{name}", "--tail=5", check=False).strip()
            raise RuntimeError(f"{error}\nits log ends with:\n{said}") from None
