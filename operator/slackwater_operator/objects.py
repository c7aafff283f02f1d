"""The Kubernetes half of acting. Rule: every answer goes into the cache before the next act."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from slackwater_operator import actions as a
from slackwater_operator import errors, paths, reading
from slackwater_operator.cache import Cache
from slackwater_operator.kube import Json, Kube
from slackwater_operator.names import (
    ANNOTATION_CLOCK,
    ANNOTATION_COMPLETED,
    ANNOTATION_FAILED,
    CLOCK_STOPPED,
    LABEL_POOL,
    LABEL_PROTECTED,
    LABEL_REVISION,
)
from slackwater_operator.pods import free_names, manifest, owner, pod_name
from slackwater_operator.spec import PoolSpec

_EVER_HEALTHY = 2_147_483_647
_NAMES_TRIED = 20


class Objects:
    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache

    async def create_pod(self, spec: PoolSpec, action: a.Create) -> str:
        """A name that exists already is ours and counts, or another's or on its way out: then the next ordinal."""
        content = next(r.content for r in self._cache.revisions.of(spec.uid) if r.name == action.revision)
        taken = {pod.name for pod in self._cache.pods.of(spec.uid)}
        name = action.name
        for _ in range(_NAMES_TRIED):
            try:
                body = await self._kube.create(
                    paths.pods(spec.namespace), manifest(spec, action.revision, content, name)
                )
                self._cache.pods.put(body)
                return name
            except errors.AlreadyExists:
                if await self._counts(spec, name):
                    return name
                taken.add(name)
                name = next(iter(free_names(spec.name, action.revision, taken)))
        raise errors.AlreadyExists(f"no free name for a pod of revision {action.revision}", status=409)

    async def _counts(self, spec: PoolSpec, name: str) -> bool:
        try:
            body = await self._kube.get(paths.pods(spec.namespace, name))
        except errors.NotFound:
            return False
        self._cache.pods.put(body)
        return reading.owner_uid(body) == spec.uid and not body["metadata"].get("deletionTimestamp")

    async def annotate_pod(
        self,
        spec: PoolSpec,
        name: str,
        uid: str,
        *,
        annotations: dict[str, Any] | None = None,
        labels: dict[str, Any] | None = None,
    ) -> Json:
        """The uid in the patch is a precondition: a namesake is answered with a conflict."""
        meta: Json = {"uid": uid}
        if annotations is not None:
            meta["annotations"] = annotations
        if labels is not None:
            meta["labels"] = labels
        try:
            body = await self._kube.patch(paths.pods(spec.namespace, name), {"metadata": meta})
        except (errors.NotFound, errors.Conflict):
            await self.pod_is_gone(spec, name, uid)
            raise
        self._cache.pods.put(body)
        return body

    async def delete_pod(self, spec: PoolSpec, action: a.Delete) -> None:
        grace = int(action.grace.total_seconds()) if action.grace is not None else None
        try:
            body = await self._kube.delete(paths.pods(spec.namespace, action.pod), uid=action.uid, grace_seconds=grace)
        except (errors.NotFound, errors.Conflict):
            await self.pod_is_gone(spec, action.pod, action.uid)
            return
        if body.get("kind") == "Pod" and body["metadata"].get("deletionTimestamp"):
            self._cache.pods.put(body)

    async def pod_is_gone(self, spec: PoolSpec, name: str, uid: str) -> bool:
        """Asked of the API server itself; the cache learns the answer."""
        if not name:
            return False
        try:
            body = await self._kube.get(paths.pods(spec.namespace, name))
        except errors.NotFound:
            self._cache.pods.remove(uid)
            return True
        self._cache.pods.put(body)
        if body["metadata"]["uid"] == uid:
            return False
        self._cache.pods.remove(uid)
        return True

    async def record(self, spec: PoolSpec, action: a.Record) -> None:
        """A dry run finds what the schema could not; only a revision whose pod would be accepted is stored."""
        name = revision_name(spec.name, action.revision)
        if action.exists:
            body = await self._kube.patch(paths.revisions(spec.namespace, name), {"revision": action.number})
            self._cache.revisions.put(body)
            return
        trial = manifest(spec, action.revision, action.content, pod_name(spec.name, action.revision, 99_999))
        try:
            await self._kube.create(paths.pods(spec.namespace), trial, dry_run=True)
        except errors.QuotaExceeded:
            pass  # says nothing about the template; the create itself will meet it
        except errors.AlreadyExists:
            pass
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "namespace": spec.namespace,
                "labels": {LABEL_POOL: spec.name, LABEL_REVISION: action.revision},
                "ownerReferences": [owner(spec)],
            },
            "data": dict(action.content),
            "revision": action.number,
        }
        try:
            self._cache.revisions.put(await self._kube.create_canonical(paths.revisions(spec.namespace), body))
        except errors.AlreadyExists:
            self._cache.revisions.put(await self._kube.get(paths.revisions(spec.namespace, name)))

    async def mark(self, spec: PoolSpec, action: a.Mark) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        key, value = {
            "completed": (ANNOTATION_COMPLETED, now),
            "failed": (ANNOTATION_FAILED, now),
            "clock-stop": (ANNOTATION_CLOCK, CLOCK_STOPPED),
            "clock-start": (ANNOTATION_CLOCK, now),
        }[action.what]
        path = paths.revisions(spec.namespace, revision_name(spec.name, action.revision))
        self._cache.revisions.put(await self._kube.patch(path, {"metadata": {"annotations": {key: value}}}))

    async def forget(self, spec: PoolSpec, action: a.Forget) -> None:
        path = paths.revisions(spec.namespace, revision_name(spec.name, action.revision))
        body = await self._kube.get(path)
        await self._kube.delete(path, uid=body["metadata"]["uid"])
        self._cache.revisions.remove(body["metadata"]["uid"])

    async def budget(self, spec: PoolSpec, action: a.Budget) -> None:
        """minAvailable beyond any count: an eviction of a protected pod waits, whatever the replicas are."""
        name = f"{spec.name}-protected"
        if not action.wanted:
            body = await self._kube.get(paths.budgets(spec.namespace, name))
            await self._kube.delete(paths.budgets(spec.namespace, name), uid=body["metadata"]["uid"])
            self._cache.budgets.remove(body["metadata"]["uid"])
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {
                "name": name,
                "namespace": spec.namespace,
                "labels": {LABEL_POOL: spec.name},
                "ownerReferences": [owner(spec)],
            },
            "spec": {
                "minAvailable": _EVER_HEALTHY,
                "unhealthyPodEvictionPolicy": "IfHealthyBudget",
                "selector": {"matchLabels": {LABEL_POOL: spec.name, LABEL_PROTECTED: "true"}},
            },
        }
        try:
            self._cache.budgets.put(await self._kube.create(paths.budgets(spec.namespace), body))
        except errors.AlreadyExists:
            there = await self._kube.get(paths.budgets(spec.namespace, name))
            if reading.owner_uid(there) != spec.uid:
                raise
            self._cache.budgets.put(there)


def revision_name(pool: str, revision: str) -> str:
    return f"{pool}-{revision}"
