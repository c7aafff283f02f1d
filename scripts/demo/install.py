"""Applying manifests/local, as the README tells a user to. Rule: nothing is installed that the manifests don't hold."""

from __future__ import annotations

from scripts.demo.screen import Screen
from tests.kit.kube import Kube
from tests.kit.waiting import until


def install(kube: Kube, screen: Screen, manifests: str = "manifests/local") -> None:
    """Server-side apply; the second round is for the sample pool, whose kind the first round has just defined."""
    screen.step(f"kubectl apply --server-side -k {manifests}")

    def applied() -> bool:
        kube.kubectl("apply", "--server-side", "--force-conflicts", "-k", manifests)
        return True

    until("the manifests applied", 60, applied, every=1)
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
