"""Pools for tests: made from a few words, watched, and gone again.

Rule: a pool of its own and a queue of its own per test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kit.gateway import Gateway
from tests.kit.kube import Kube, Object, condition
from tests.kit.provider import Provider, Run, Verdict, judge
from tests.kit.storeview import Held, StoreView
from tests.kit.waiting import until
from tests.kit.watch import Watcher

V1, V2 = "localhost/slackwater-render:v1", "localhost/slackwater-render:v2"


@dataclass(frozen=True)
class Stage:
    """The installed product and the way to its parts."""

    kube: Kube
    gateway: Gateway
    provider: Provider
    store: StoreView


def manifest(name: str, *, replicas: int, concurrency: int, image: str = V1, **spec: Any) -> Object:
    """A WorkerPool with the sample's tasks on the queue of its own name; `spec` adds or replaces fields."""
    worker = {
        "name": "worker",
        "image": image,
        "env": [
            {"name": "SLACKWATER_TASKS", "value": "samples.render.tasks"},
            {"name": "RENDER_URL", "value": "http://provider:8090"},
        ],
        "envFrom": [{"configMapRef": {"name": "slackwater-settings", "optional": True}}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "slackwater.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "concurrency": concurrency,
            "queues": [name],
            "storeSecretRef": {"name": "slackwater-store"},
            "template": {"spec": {"containers": [worker]}},
            **spec,
        },
    }


class PoolUnderTest:
    """One WorkerPool, its pods and its tasks."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.selector = f"slackwater.dev/pool={name}"
        self.tasks: list[str] = []

    @property
    def body(self) -> Object:
        return self.stage.kube.pool(self.name)

    @property
    def status(self) -> Object:
        found: Object = self.body.get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        return condition(self.body, kind)

    def pods(self) -> list[Object]:
        return self.stage.kube.pods(self.selector)

    def patch(self, **spec: Any) -> None:
        self.stage.kube.patch_pool(self.name, spec)

    def set_image(self, image: str) -> None:
        self.stage.kube.set_image(self.name, image)

    def submit(self, kind: str, payload: dict[str, Any], **fields: Any) -> str:
        key = f"{self.name}-{len(self.tasks)}"
        task = self.stage.gateway.submit(kind, payload, key=key, queue=self.name, **fields)
        self.tasks.append(task)
        return task

    def render(self, seconds: float) -> str:
        return self.submit("render", {"seconds": seconds, "frame": len(self.tasks)})

    def held(self) -> list[Held]:
        """Leases held by this pool's pods."""
        uids = {p["metadata"]["uid"] for p in self.pods()}
        return [h for h in self.stage.store.held() if h.pod_uid in uids]

    def until_each_busy(self, pods: int, leases_each: int = 1, seconds: float = 40) -> None:
        def ask() -> bool:
            by_pod = [h.pod_uid for h in self.held()]
            return len(set(by_pod)) == pods and len(by_pod) == pods * leases_each

        until(f"{pods} pods hold {leases_each} lease(s) each", seconds, ask)

    def until_settled(self, replicas: int, seconds: float = 90) -> None:
        """As many pods as wanted, all of the newest revision and ready, none going, generation observed."""

        def ask() -> bool:
            body = self.body
            status = body.get("status", {})
            counts = [status.get(k) for k in ("replicas", "readyReplicas", "updatedReplicas")]
            going = status.get("drainingReplicas") or status.get("terminatingReplicas")
            seen = status.get("observedGeneration") == body["metadata"]["generation"]
            return bool(seen and not going and counts == [replicas] * 3 and len(self.pods()) == replicas)

        until(f"pool {self.name} settled at {replicas}", seconds, ask)

    def wait_ended(self, seconds: float = 120) -> dict[str, str]:
        return self.stage.gateway.wait_ended(self.tasks, seconds)

    def verdict(self) -> Verdict:
        """What the provider's log says about this pool's tasks."""
        return judge(e for e in self.stage.provider.log() if e["task"] in set(self.tasks))

    def assert_each_ran_once(self) -> None:
        """Every task: one claim, one run to its end, one charge."""
        verdict = self.verdict()
        assert not verdict.interrupted
        assert {(r.task, r.epoch) for r in verdict.runs} == {(t, 1) for t in self.tasks}
        assert verdict.ends_by_task == dict.fromkeys(self.tasks, 1)
        assert not verdict.paid_twice

    def runs_of(self, task: str) -> list[Run]:
        return [r for r in self.verdict().runs if r.task == task]

    def watched(self, *, leases: bool = True) -> Watcher:
        """`leases=False` where the store is away and can't be asked who holds what."""
        return Watcher(self.stage.kube, self.stage.store if leases else None, self.selector)

    def until_condition(self, kind: str, matches: Callable[[Object], bool], seconds: float) -> Object:
        def ask() -> Object | None:
            found = self.condition(kind)
            return found if matches(found) else None

        return until(f"condition {kind} of {self.name}", seconds, ask)

    def remove(self) -> None:
        kube = self.stage.kube
        kube.kubectl("delete", "workerpool", self.name, "--ignore-not-found", "--wait=false")
        kube.kubectl("delete", "pods", "-l", self.selector, "--force", "--grace-period=0", "--wait=false")
        until(f"pods of {self.name} gone", 60, lambda: not self.pods())
