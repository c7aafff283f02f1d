"""What is rolled out: a WorkerPool, or for the comparison a plain Deployment of the same image and the same work."""

from __future__ import annotations

from typing import Protocol

from scripts.demo.plan import CONCURRENCY, OLD_IMAGE, PLAIN_GRACE_SECONDS, REPLICAS
from tests.kit.kube import Kube, condition

POD_UID = "SLACKWATER_POD_UID"
"""Environment variable of a worker that holds its pod's uid."""


class Subject(Protocol):
    title: str
    queue: str
    selector: str

    def create(self) -> None: ...
    def set_image(self, image: str) -> None: ...
    def scale(self, replicas: int) -> None: ...
    def settled(self, replicas: int) -> bool:
        """All pods are of the newest revision, as many as wanted, ready, and none is going."""

    def says(self) -> str:
        """What it waits for, in its own words."""


class Pool:
    title, queue, selector = "WorkerPool", "default", "slackwater.dev/pool=renders"

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self) -> None:
        """The quickstart has it already."""

    def set_image(self, image: str) -> None:
        self._kube.set_image("renders", image)

    def scale(self, replicas: int) -> None:
        self._kube.kubectl("scale", "workerpool", "renders", f"--replicas={replicas}")

    def settled(self, replicas: int) -> bool:
        pool = self._kube.pool("renders")
        status = pool.get("status", {})
        counts = [status.get(k) for k in ("replicas", "readyReplicas", "updatedReplicas")]
        gone = not status.get("drainingReplicas") and not status.get("terminatingReplicas")
        seen = status.get("observedGeneration") == pool["metadata"]["generation"]
        return seen and gone and counts == [replicas] * 3 and len(self._kube.pods(self.selector)) == replicas

    def says(self) -> str:
        pool = self._kube.pool("renders")
        draining = pool.get("status", {}).get("draining", [])
        if not draining:
            return str(condition(pool, "Progressing").get("message", ""))
        first = draining[0]
        return f"waits for {first['pod']}, {first['leases']} leases, until {first['deadline'][11:16]}"


class Plain:
    title, queue, selector = "Deployment", "plain", "app=plain"

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self) -> None:
        stores = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "slackwater-store", "key": name}}}
            for name in ("DATABASE_URL", "REDIS_URL")
        ]
        settings = {
            "SLACKWATER_TASKS": "samples.render.tasks",
            "SLACKWATER_QUEUES": self.queue,
            "SLACKWATER_CONCURRENCY": str(CONCURRENCY),
            "RENDER_URL": "http://provider:8090",
        }
        worker = {
            "name": "worker",
            "image": OLD_IMAGE,
            "env": [
                *stores,
                *({"name": name, "value": value} for name, value in settings.items()),
                {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            ],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
            "volumeMounts": [{"name": "run", "mountPath": "/run/slackwater"}, {"name": "tmp", "mountPath": "/tmp"}],
        }
        pod = {
            "terminationGracePeriodSeconds": PLAIN_GRACE_SECONDS,
            "containers": [worker],
            "volumes": [{"name": "run", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        }
        labels = {"app": "plain"}
        spec = {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        self._kube.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain"}, "spec": spec})

    def set_image(self, image: str) -> None:
        self._kube.kubectl("set", "image", "deployment/plain", f"worker={image}")

    def scale(self, replicas: int) -> None:
        self._kube.kubectl("scale", "deployment/plain", f"--replicas={replicas}")

    def settled(self, replicas: int) -> bool:
        deployment = self._kube.apps.read_namespaced_deployment("plain", self._kube.namespace)
        status = deployment.status
        ready = status is not None and (status.ready_replicas, status.updated_replicas) == (replicas, replicas)
        return ready and len(self._kube.pods(self.selector)) == replicas

    def says(self) -> str:
        return ""
