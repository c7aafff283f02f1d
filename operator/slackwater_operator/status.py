"""status(spec, seen, plan) → what people read. Rule: counts are true, lists are bounded, reasons are closed.

The result is a plain dict without times of transition: `merge` adds them, and keeps the old ones where nothing
changed, so that an unchanged status is equal and is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from slackwater_operator.conditions import Problem, conditions
from slackwater_operator.drain import FAR_FUTURE, Look, Standing, Work, look
from slackwater_operator.names import LABEL_POOL
from slackwater_operator.revisions import choose
from slackwater_operator.rollout import tally
from slackwater_operator.seen import Observation
from slackwater_operator.spec import PoolSpec

MAX_DRAINING = 20
MAX_REVISIONS = 10
DRIFTING = ("idleReplicas", "busyReplicas", "activeLeases", "recovery")
"""Figures that change with every task: at most one write a minute for their sake."""
_COUNTERS = {
    "orphanedSlotsReleased": "orphaned_slots_released",
    "staleTasksFinalized": "stale_tasks_finalized",
    "tasksRequeued": "tasks_requeued",
    "staleWritesRefused": "stale_writes_refused",
}


def status(spec: PoolSpec, seen: Observation, now: datetime, problems: Iterable[Problem] = ()) -> dict[str, Any]:
    views = tuple(look(seen, pod, now) for pod in seen.pods)
    chosen = choose(spec, seen, views, now)
    count = tally(spec, chosen, views, now)
    active = [v for v in views if v.standing is Standing.ACTIVE]
    ready = [v for v in active if v.pod.ready and (v.registered or seen.store is None)]
    draining = [v for v in views if v.standing is Standing.DRAINING]
    found: dict[str, Any] = {
        "observedGeneration": spec.generation,
        "replicas": len(active),
        "readyReplicas": len(ready),
        "idleReplicas": sum(v.work is Work.IDLE for v in ready),
        "busyReplicas": sum(bool(v.leases) for v in views),
        "drainingReplicas": len(draining),
        "terminatingReplicas": sum(v.standing is Standing.TERMINATING for v in views),
        "lostReplicas": sum(v.standing is Standing.LOST for v in views),
        "updatedReplicas": sum(v.pod.revision == chosen.update for v in active),
        "unavailableReplicas": max(0, spec.desired - len(ready)),
        "activeLeases": sum(len(v.leases) for v in views),
        "selector": f"{LABEL_POOL}={spec.name}",
        "currentRevision": chosen.current or chosen.update,
        "updateRevision": chosen.update,
        "revisions": _revisions(views),
        "draining": _draining(views),
        "conditions": conditions(
            spec=spec,
            seen=seen,
            views=views,
            chosen=chosen,
            count=count,
            now=now,
            problems=tuple(problems),
        ),
    }
    if seen.store is not None:
        found["recovery"] = {name: seen.store.counters.get(key, 0) for name, key in _COUNTERS.items()}
    return found


def _revisions(views: Iterable[Look]) -> list[dict[str, Any]]:
    by_name: dict[str, list[Look]] = {}
    for view in views:
        by_name.setdefault(view.pod.revision, []).append(view)
    return [
        {
            "name": name,
            "replicas": sum(v.standing is Standing.ACTIVE for v in group),
            "busy": sum(bool(v.leases) for v in group),
            "leases": sum(len(v.leases) for v in group),
        }
        for name, group in sorted(by_name.items())[:MAX_REVISIONS]
    ]


def _draining(views: Iterable[Look]) -> list[dict[str, Any]]:
    """Every pod that is on its way out and whose cordon is known, the one with the earliest deadline first."""
    going = [v for v in views if v.cordon is not None and not v.lift and v.standing is not Standing.ENDED]
    going.sort(key=lambda v: (v.cordon.deadline or FAR_FUTURE if v.cordon else FAR_FUTURE, v.pod.name))
    return [_drain_entry(v) for v in going[:MAX_DRAINING]]


def _drain_entry(view: Look) -> dict[str, Any]:
    assert view.cordon is not None
    entry: dict[str, Any] = {
        "pod": view.pod.name,
        "uid": view.pod.uid,
        "revision": view.pod.revision,
        "cause": view.cause,
        "since": minute(view.cordon.since - timedelta(seconds=30)),
        "leases": len(view.leases),
    }
    if view.cordon.deadline is not None:
        entry["deadline"] = minute(view.cordon.deadline)
    if view.leases and view.free_at() < FAR_FUTURE:
        entry["expectedCompletionTime"] = minute(view.free_at())
    return entry


def minute(instant: datetime) -> str:
    """Rounded to the minute, so that an estimate's tremor writes nothing."""
    rounded = (instant + timedelta(seconds=30)).replace(second=0, microsecond=0)
    return rounded.strftime("%Y-%m-%dT%H:%M:%SZ")


def merge(old: Mapping[str, Any], new: dict[str, Any], now: datetime) -> dict[str, Any]:
    """New content with the old times of transition of conditions whose status has not changed, and with the last
    known counters while the store gives no answer."""
    before = {c["type"]: c for c in old.get("conditions") or []}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    merged = []
    for condition in new["conditions"]:
        was = before.get(condition["type"])
        same = was is not None and was.get("status") == condition["status"]
        since = was["lastTransitionTime"] if same and was and was.get("lastTransitionTime") else stamp
        merged.append({**condition, "lastTransitionTime": since})
    kept = {"recovery": old["recovery"]} if "recovery" in old else {}
    return {**kept, **new, "conditions": merged}


def settled_part(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth a write at once: everything but the drifting figures."""
    kept = {key: value for key, value in found.items() if key not in DRIFTING}
    kept["revisions"] = [{**r, "busy": 0, "leases": 0} for r in found.get("revisions") or []]
    kept["draining"] = [
        {k: v for k, v in d.items() if k not in ("leases", "expectedCompletionTime")}
        for d in found.get("draining") or []
    ]
    kept["conditions"] = [
        {k: v for k, v in c.items() if k != "message" or c["type"] != "Draining"} for c in found.get("conditions") or []
    ]
    return kept
