"""The pod that a revision makes, and the revision's name. Rule: the user's template wins where safety allows.

Ours: identity, the store's secret, the shared lock directory, the grace period and the probes' meaning. The
revision's name is a hash of what was written, so none of this is part of it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from slackwater_operator.names import (
    GROUP,
    HEALTH_PORT,
    KIND,
    LABEL_POOL,
    LABEL_REVISION,
    RUN_DIR,
    VERSION,
    WORKER_CONTAINER,
)
from slackwater_operator.spec import PoolSpec

_VOLUME = "slackwater-run"
_COMES_BACK = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def revision_hash(content: Mapping[str, Any], salt: int = 0) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + (f"#{salt}" if salt else "")
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def pod_name(pool: str, revision: str, ordinal: int) -> str:
    return f"{pool}-{revision}-{ordinal}"


def free_names(pool: str, revision: str, taken: Iterable[str]) -> Iterable[str]:
    used = set(taken)
    return (name for n in range(100_000) if (name := pod_name(pool, revision, n)) not in used)


def manifest(spec: PoolSpec, revision: str, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    template = copy.deepcopy(dict(content["template"]))
    meta, pod = template.get("metadata") or {}, template["spec"]
    pod["restartPolicy"] = "Always"
    pod["terminationGracePeriodSeconds"] = int(spec.grace.total_seconds())
    pod.setdefault("automountServiceAccountToken", False)
    pod.setdefault("enableServiceLinks", False)
    pod["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **(pod.get("securityContext") or {}),
    }
    pod["tolerations"] = [*(pod.get("tolerations") or []), *_tolerations(spec, pod.get("tolerations") or [])]
    pod.setdefault("topologySpreadConstraints", [_spread(spec.name)])
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": _VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}]
    worker = next(c for c in pod["containers"] if c["name"] == WORKER_CONTAINER)
    _worker(worker, spec, revision, content)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": spec.namespace,
            "labels": {**(meta.get("labels") or {}), LABEL_POOL: spec.name, LABEL_REVISION: revision},
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner(spec)],
        },
        "spec": pod,
    }


def owner(spec: PoolSpec) -> dict[str, Any]:
    """blockOwnerDeletion would need the right to update finalizers, and nothing here blocks a deletion."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _worker(container: dict[str, Any], spec: PoolSpec, revision: str, content: Mapping[str, Any]) -> None:
    ours = _environment(spec, revision, content)
    names = {e["name"] for e in ours}
    container["env"] = [*ours, *(e for e in container.get("env") or [] if e["name"] not in names)]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or []),
        {"name": _VOLUME, "mountPath": RUN_DIR},
    ]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        **(container.get("securityContext") or {}),
    }
    # The worker writes its id there: the kubelet's terminated state names it (rule 9).
    container["terminationMessagePath"] = "/dev/termination-log"
    container["terminationMessagePolicy"] = "File"
    container.setdefault("startupProbe", _probe("/livez", periodSeconds=1, failureThreshold=60))
    container.setdefault("readinessProbe", _probe("/readyz", periodSeconds=2, failureThreshold=3))
    # A hung main loop has nothing left to finish, so its kill does not wait for the drain's deadline.
    container.setdefault(
        "livenessProbe",
        _probe("/livez", periodSeconds=10, failureThreshold=3, terminationGracePeriodSeconds=30),
    )


def _environment(spec: PoolSpec, revision: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
    secret = (content.get("storeSecretRef") or {}).get("name") or "slackwater-store"

    def from_secret(key: str, *, optional: bool = False) -> dict[str, Any]:
        ref: dict[str, Any] = {"name": secret, "key": key}
        return {"name": key, "valueFrom": {"secretKeyRef": {**ref, "optional": True} if optional else ref}}

    def from_pod(name: str, path: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    plain = {
        "SLACKWATER_POOL_UID": spec.uid,
        "SLACKWATER_POOL_NAME": spec.name,
        "SLACKWATER_REVISION": revision,
        "SLACKWATER_QUEUES": ",".join(content.get("queues") or ["default"]),
        "SLACKWATER_CONCURRENCY": str(content.get("concurrency") or 1),
        "SLACKWATER_GRACE_SECONDS": str(int(spec.grace.total_seconds())),
        "SLACKWATER_RUN_DIR": RUN_DIR,
        "SLACKWATER_HEALTH_PORT": str(HEALTH_PORT),
    }
    return [
        from_secret("DATABASE_URL"),
        from_secret("DATABASE_DIRECT_URL", optional=True),
        from_secret("REDIS_URL"),
        from_pod("SLACKWATER_NAMESPACE", "metadata.namespace"),
        from_pod("SLACKWATER_POD_UID", "metadata.uid"),
        from_pod("SLACKWATER_POD_NAME", "metadata.name"),
        from_pod("SLACKWATER_NODE_NAME", "spec.nodeName"),
        *({"name": name, "value": value} for name, value in plain.items()),
    ]


def _probe(path: str, **figures: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": HEALTH_PORT}, "timeoutSeconds": 5, **figures}


def _tolerations(spec: PoolSpec, own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A node that is cut off keeps its pods as long as a drain may take: their work may well go on."""
    seconds = int((spec.grace if spec.drain.waits else spec.drain.deadline).total_seconds())
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _COMES_BACK
        if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in own)
    ]


def _spread(pool: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {LABEL_POOL: pool}},
        "matchLabelKeys": [LABEL_REVISION],
    }
