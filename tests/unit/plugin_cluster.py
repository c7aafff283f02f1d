"""What an API server has of one pool, as it really looks, and a small server that tells it and takes merge patches."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slackwater_operator.cli.change import merged

Json = dict[str, Any]
NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
NEW, OLD = "5d1e0c9ab2", "9c2f77e410"
POOL_UID = "6a0e7a54-8f6e-4b1e-9f0a-0d4b7a1f3c11"


def at(minutes: float) -> str:
    """Minutes from now."""
    return (NOW + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def content(image: str, **more: Any) -> Json:
    """What a revision is made of, as the API server's defaults leave it."""
    return {
        "template": {
            "spec": {"containers": [{"name": "worker", "image": image, "env": [{"name": "A", "value": "1"}]}]}
        },
        "queues": ["default"],
        "concurrency": 1,
        "storeSecretRef": {"name": "slackwater-store"},
        **more,
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(-5)}


def pool(*, status: Json | None = None, conditions: tuple[Json, ...] = (), **spec: Any) -> Json:
    """In the middle of a rollout of two pods."""
    usual = [
        condition("Ready", "True", "AllReady", "2 of 2 pods serve"),
        condition("Progressing", "True", "RollingOut", f"1 of 2 pods have revision {NEW}"),
        condition("StoreReachable", "True", "Reachable", "the store answered"),
        condition("RolloutFailed", "False", "NotFailed", "no rollout failed"),
        condition("EvictionBlocked", "False", "NotBlocked", ""),
        condition("Stalled", "False", "NotStalled", "nothing is in the way"),
    ]
    kinds = {c["type"] for c in conditions}
    return {
        "apiVersion": "slackwater.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {
            "name": "reports",
            "namespace": "shop",
            "uid": POOL_UID,
            "generation": 4,
            "resourceVersion": "1200",
            "creationTimestamp": at(-6000),
        },
        "spec": {
            "replicas": 2,
            **content("app:2"),
            "admission": "Open",
            "drain": {"deadline": "90m", "onDeadline": "Fence", "maxDraining": 3, "deadlines": {"Spot": "90s"}},
            "rollout": {"paused": False, "maxSurge": 1, "maxUnavailable": 0, "partition": 0, "progressDeadline": "10m"},
            **spec,
        },
        "status": {
            "observedGeneration": 4,
            "replicas": 2,
            "readyReplicas": 2,
            "busyReplicas": 2,
            "drainingReplicas": 1,
            "terminatingReplicas": 0,
            "updatedReplicas": 1,
            "activeLeases": 3,
            "currentRevision": OLD,
            "updateRevision": NEW,
            "revisions": [
                {"name": NEW, "replicas": 1, "busy": 1, "leases": 1},
                {"name": OLD, "replicas": 1, "busy": 1, "leases": 2},
            ],
            "draining": [going(f"reports-{OLD}-0")],
            "conditions": [*conditions, *(c for c in usual if c["type"] not in kinds)],
            **(status or {}),
        },
    }


def going(name: str, **more: Any) -> Json:
    entry = {
        "pod": name,
        "uid": f"uid-{name}",
        "revision": OLD,
        "cause": "Rollout",
        "since": at(-20),
        "deadline": at(70),
        "leases": 2,
        "expectedCompletionTime": at(12),
    }
    return {key: value for key, value in {**entry, **more}.items() if value is not None}


def pod(name: str, revision: str = NEW, *, ready: bool = True, owned: bool = True, **meta: Any) -> Json:
    """A Running pod of the pool."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "77",
            "creationTimestamp": at(-130),
            "labels": {"slackwater.dev/pool": "reports", "slackwater.dev/revision": revision, **meta.pop("labels", {})},
            "ownerReferences": [
                {"kind": "WorkerPool", "name": "reports", "uid": POOL_UID, "controller": True},
            ]
            if owned
            else [],
            **meta,
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "worker", "image": "app:2"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": at(-129)}],
            "containerStatuses": [
                {"name": "worker", "ready": ready, "restartCount": 0, "state": {"running": {"startedAt": at(-130)}}}
            ],
        },
    }


def waiting(body: Json, reason: str, message: str) -> Json:
    """The pod whose container does not start."""
    made = copy.deepcopy(body)
    made["status"]["phase"] = "Pending"
    made["status"]["containerStatuses"][0].update(
        ready=False, state={"waiting": {"reason": reason, "message": message}}
    )
    made["status"]["conditions"][0]["status"] = "False"
    return made


def draining(name: str = f"reports-{OLD}-0", revision: str = OLD, cause: str = "Rollout") -> Json:
    return pod(name, revision, annotations={"slackwater.dev/drain-cause": cause})


def revision(number: int, name: str, data: Json, **annotations: str) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"reports-{name}",
            "namespace": "shop",
            "uid": f"uid-{name}",
            "creationTimestamp": at(-1000 + number),
            "labels": {"slackwater.dev/pool": "reports", "slackwater.dev/revision": name},
            "ownerReferences": [{"kind": "WorkerPool", "name": "reports", "uid": POOL_UID, "controller": True}],
            "annotations": {f"slackwater.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "data": data,
        "revision": number,
    }


REVISIONS = (
    revision(1, OLD, content("app:1", restartedAt=at(-900)), completed_at=at(-800)),
    revision(2, "bad0000000", content("app:broken"), failed_at=at(-700)),
    revision(3, NEW, content("app:2")),
)
_POOLS = "/apis/slackwater.dev/v1alpha1/namespaces/shop/workerpools"
_PODS = "/api/v1/namespaces/shop/pods"
_REVISIONS = "/apis/apps/v1/namespaces/shop/controllerrevisions"


class Cluster:
    """Objects by path, and what was sent to change them."""

    def __init__(
        self, *pods: Json, pools: tuple[Json, ...] = (pool(),), revisions: tuple[Json, ...] = REVISIONS
    ) -> None:
        self.objects: dict[str, Json] = {}
        for base, bodies in ((_POOLS, pools), (_PODS, pods), (_REVISIONS, revisions)):
            self.objects |= {f"{base}/{body['metadata']['name']}": copy.deepcopy(body) for body in bodies}
        self.sent: list[tuple[str, Json]] = []
        self.conflicts = 0
        """This many patches find that somebody else wrote first."""

    def pool(self) -> Json:
        return self.objects[f"{_POOLS}/reports"]

    def pod(self, name: str) -> Json:
        return self.objects[f"{_PODS}/{name}"]

    def get(self, path: str, selector: str) -> tuple[int, Json]:
        if path in self.objects:
            return 200, self.objects[path]
        if path in (_POOLS, _PODS, _REVISIONS):
            key, _, value = selector.partition("=")
            items = [
                o
                for p, o in self.objects.items()
                if p.startswith(f"{path}/") and (not key or o["metadata"].get("labels", {}).get(key) == value)
            ]
            return 200, {"kind": "List", "metadata": {}, "items": items}
        return 404, {"kind": "Status", "reason": "NotFound", "message": f'"{path.rsplit("/", 1)[1]}" not found'}

    def patch(self, path: str, body: Json) -> tuple[int, Json]:
        there = self.objects.get(path)
        if there is None:
            return self.get(path, "")
        if self.conflicts:
            self.conflicts -= 1
            version = str(int(there["metadata"]["resourceVersion"]) + 1)
            there["metadata"]["resourceVersion"] = version
        for key in ("uid", "resourceVersion"):
            if body.get("metadata", {}).get(key, there["metadata"][key]) != there["metadata"][key]:
                return 409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
        self.sent.append((path, body))
        self.objects[path] = merged(there, body)
        return 200, self.objects[path]


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            self._answer(*cluster.get(url.path, parse_qs(url.query).get("labelSelector", [""])[0]))

        def do_PATCH(self) -> None:
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*cluster.patch(urlsplit(self.path).path, body))

        def _answer(self, code: int, body: Json) -> None:
            text = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
