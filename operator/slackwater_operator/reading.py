"""What the API server tells → values. Rule: a missing field means not known, never fine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from slackwater_operator.drain import UNSCHEDULABLE
from slackwater_operator.names import (
    ANNOTATION_CAUSE,
    ANNOTATION_CLOCK,
    ANNOTATION_COMPLETED,
    ANNOTATION_FAILED,
    AUTOSCALER_KEEP,
    CLOCK_STOPPED,
    KIND,
    LABEL_PROTECTED,
    LABEL_REVISION,
    WORKER_CONTAINER,
    Reason,
)
from slackwater_operator.seen import Budget, Exit, Node, Pod, Revision, Taint, Toleration, Trouble

Raw = Mapping[str, Any]
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_HARMLESS = frozenset({"ContainerCreating", "PodInitializing", ""})


def instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def owner_uid(body: Raw) -> str | None:
    """Of the WorkerPool that controls it; labels alone make nobody ours."""
    for owner in body["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == KIND:
            return str(owner["uid"])
    return None


def version(body: Raw) -> int:
    """resourceVersions of one resource may be compared as numbers."""
    text = body["metadata"].get("resourceVersion", "0")
    return int(text) if str(text).isdigit() else 0


def pod(body: Raw) -> Pod:
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    container = _named(status.get("containerStatuses") or [], WORKER_CONTAINER)
    state = container.get("state") or {}
    ready = _named(status.get("conditions") or [], "Ready", key="type")
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        revision=labels.get(LABEL_REVISION, ""),
        created=instant(meta["creationTimestamp"]) or _LONG_AGO,
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        running="running" in state,
        ready=ready.get("status") == "True",
        ready_changed=instant(ready.get("lastTransitionTime")),
        deleting=instant(meta.get("deletionTimestamp")),
        cause=annotations.get(ANNOTATION_CAUSE),
        protected=labels.get(LABEL_PROTECTED) == "true",
        kept=all(annotations.get(key) == value for key, value in AUTOSCALER_KEEP.items()),
        restarts=int(container.get("restartCount", 0)),
        trouble=_trouble(status, container),
        exits=tuple(_exits(container)),
        tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or []),
        finalizers=tuple(meta.get("finalizers") or []),
        version=version(body),
    )


def _named(items: Iterable[Raw], name: str, key: str = "name") -> Raw:
    return next((item for item in items if item.get(key) == name), {})


def _exits(container: Raw) -> Iterable[Exit]:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended:
            first_line = (ended.get("message") or "").strip().splitlines()[:1]
            yield Exit("".join(first_line), ended.get("reason", ""), int(ended.get("exitCode", -1)))


def _trouble(status: Raw, container: Raw) -> Trouble | None:
    if status.get("phase") in ("Failed", "Succeeded"):
        return Trouble(status.get("reason") or status["phase"], status.get("message") or "the pod has ended")
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    if waiting.get("reason", "") not in _HARMLESS:
        # CrashLoopBackOff says when, the last state says why.
        last = (container.get("lastState") or {}).get("terminated") or {}
        why = f"; {last.get('reason', '')}, {_code(last)}" if last else ""
        message = waiting.get("message") or container.get("image", "")
        return Trouble(waiting["reason"], f"{message}{why}")
    ended = state.get("terminated")
    if ended:
        return Trouble(ended.get("reason", "Error"), _code(ended))
    last = (container.get("lastState") or {}).get("terminated")
    if last and not container.get("ready") and int(container.get("restartCount", 0)) > 1:
        # Between two crashes it runs for a moment; it is in the same trouble all the while.
        return Trouble(last.get("reason", "Error"), f"restarted {container['restartCount']} times; {_code(last)}")
    scheduled = _named(status.get("conditions") or [], "PodScheduled", key="type")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Trouble(Reason.UNSCHEDULABLE.value, scheduled.get("message", ""))
    return None


def _code(terminated: Raw) -> str:
    """With the sentence that the worker wrote if it could not start; a started one's message is its id, one word."""
    said = str(terminated.get("message") or "").strip().splitlines()
    told = f": {said[0][:300]}" if said and " " in said[0] else ""
    return f"exit code {terminated.get('exitCode')}{told}"


def _toleration(raw: Raw) -> Toleration:
    return Toleration(
        key=raw.get("key", ""),
        operator=raw.get("operator", "Equal"),
        value=raw.get("value", ""),
        effect=raw.get("effect", ""),
        seconds=raw.get("tolerationSeconds"),
    )


def node(body: Raw) -> Node:
    meta, spec = body["metadata"], body.get("spec") or {}
    taints = [Taint(t["key"], t["effect"], t.get("value", "")) for t in spec.get("taints") or []]
    if spec.get("unschedulable") and UNSCHEDULABLE.key not in {t.key for t in taints}:
        taints.append(UNSCHEDULABLE)
    ready = _named((body.get("status") or {}).get("conditions") or [], "Ready", key="type")
    return Node(
        name=meta["name"],
        reachable=ready.get("status", "Unknown") == "True",
        changed=instant(ready.get("lastTransitionTime")),
        taints=tuple(taints),
        deleting=meta.get("deletionTimestamp") is not None,
    )


def revision(body: Raw) -> Revision:
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    clock = annotations.get(ANNOTATION_CLOCK)
    return Revision(
        name=(meta.get("labels") or {}).get(LABEL_REVISION, ""),
        content=body.get("data") or {},
        number=int(body.get("revision", 0)),
        created=instant(meta["creationTimestamp"]) or _LONG_AGO,
        completed=instant(annotations.get(ANNOTATION_COMPLETED)),
        failed=instant(annotations.get(ANNOTATION_FAILED)),
        clock=None if clock == CLOCK_STOPPED else instant(clock),
        clock_stopped=clock == CLOCK_STOPPED,
    )


def budget(body: Raw, pool_uid: str) -> Budget:
    selector = (body.get("spec") or {}).get("selector") or {}
    plain = not selector.get("matchExpressions")
    return Budget(
        name=body["metadata"]["name"],
        ours=owner_uid(body) == pool_uid,
        selects=tuple(sorted((selector.get("matchLabels") or {}).items())) if plain else (),
    )
