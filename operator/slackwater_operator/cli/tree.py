"""pool + pods → a tree: pool, revisions, pods. Rule: the document has everything, the lines say what matters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from slackwater_operator.cli.survey import (
    Raw,
    Sight,
    State,
    rollout_of,
    sights,
    spec_of,
    status_of,
    up_to_date,
    worth_saying,
)
from slackwater_operator.cli.words import Json, aligned, clean, clock, count, span, stamp
from slackwater_operator.names import Condition

_COUNTS = (
    ("ready", "readyReplicas"),
    ("busy", "busyReplicas"),
    ("draining", "drainingReplicas"),
    ("terminating", "terminatingReplicas"),
    ("lost", "lostReplicas"),
    ("leases", "activeLeases"),
)
_ALWAYS = ("ready", "busy", "draining", "leases")


def document(pool: Raw, pods: Iterable[Raw]) -> Json:
    status = status_of(pool)
    groups: dict[str, list[Sight]] = {}
    for sight in sights(pool, pods):
        groups.setdefault(sight.pod.revision, []).append(sight)
    wanted, proven = status.get("updateRevision", ""), status.get("currentRevision", "")
    told = {entry.get("name", ""): entry for entry in status.get("revisions") or []}
    names = sorted({*groups, *told, *([wanted] if wanted else [])}, key=lambda n: (n != wanted, n != proven, n))
    return {
        "pool": pool["metadata"]["name"],
        "namespace": pool["metadata"]["namespace"],
        "desired": spec_of(pool).get("replicas", 1),
        "admission": spec_of(pool).get("admission", "Open"),
        "paused": bool(rollout_of(pool).get("paused")),
        "deleting": pool["metadata"].get("deletionTimestamp") is not None,
        "statusIsCurrent": up_to_date(pool),
        **{name: int(status.get(key, 0)) for name, key in _COUNTS},
        "conditions": [dict(c) for c in status.get("conditions") or []],
        "revisions": [
            {
                "name": name,
                "wanted": name == wanted,
                "proven": name == proven,
                "busy": int(told.get(name, {}).get("busy", 0)),
                "leases": int(told.get(name, {}).get("leases", 0)),
                "pods": [_pod(sight) for sight in groups.get(name, [])],
            }
            for name in names
        ],
    }


def _pod(sight: Sight) -> Json:
    pod, going = sight.pod, sight.going
    trouble = f"{pod.trouble.reason}: {pod.trouble.message}" if pod.trouble else None
    return {
        "name": pod.name,
        "uid": pod.uid,
        "state": sight.state.value,
        "node": pod.node or None,
        "created": stamp(pod.created),
        "protected": pod.protected,
        "cause": sight.cause or None,
        "since": stamp(going.since) if going and going.since else None,
        "deadline": stamp(going.deadline) if going and going.deadline else None,
        "expectedCompletionTime": stamp(going.expected) if going and going.expected else None,
        "leases": going.leases if going else None,
        "finalizers": list(pod.finalizers),
        "deletionTimestamp": stamp(pod.deleting) if pod.deleting else None,
        "restarts": pod.restarts,
        "trouble": clean(trouble) if trouble else None,
    }


def lines(pool: Raw, pods: Iterable[Raw], now: datetime) -> list[str]:
    found = document(pool, pods)
    said = [_headline(found), *(f"  {_condition(c)}" for c in worth_saying(pool))]
    if not status_of(pool):
        said.append("  the operator has not written a status yet: is it running, and does it watch this namespace?")
    elif not found["statusIsCurrent"]:
        said.append("  the operator has not seen the latest spec yet; what follows is of the one before")
    rows: list[tuple[str, ...]] = []
    revisions = found["revisions"]
    for number, revision in enumerate(revisions):
        last = number == len(revisions) - 1
        rows.append((f"{'└─' if last else '├─'} {_revision(revision)}",))
        pods_of = revision["pods"]
        for index, pod in enumerate(pods_of):
            branch = ("   " if last else "│  ") + ("└─" if index == len(pods_of) - 1 else "├─")
            rows.append(_row(branch, pod, now))
    return said + aligned(rows)


def _headline(found: Json) -> str:
    parts = [f"{found['namespace']}/{found['pool']}", f"desired {found['desired']}"]
    parts += [f"{name} {found[name]}" for name, _ in _COUNTS if name in _ALWAYS or found[name]]
    if found["admission"] != "Open":
        parts.append(f"admission {found['admission']}")
    parts += [word for word in ("paused", "deleting") if found[word]]
    return "  ".join(parts)


def _condition(raw: Raw) -> str:
    return f"{raw.get('type')}={raw.get('status')}  {raw.get('reason', '')}  {clean(raw.get('message', ''))}"


def _revision(found: Json) -> str:
    marks = [word for word in ("wanted", "proven") if found[word]]
    mark = f" ({', '.join(marks)})" if marks else ""
    pods = count(len(found["pods"]), "pod")
    return f"revision {found['name'] or 'unknown'}{mark}  {pods}  busy {found['busy']}  leases {found['leases']}"


def _row(branch: str, pod: Json, now: datetime) -> tuple[str, ...]:
    age = span(now - datetime.fromisoformat(pod["created"]))
    return (f"{branch} {pod['name']}", pod["state"], pod["node"] or "-", age, _detail(pod, now))


def _detail(pod: Json, now: datetime) -> str:
    parts: list[str] = []
    if pod["cause"]:
        since = f" since {_at(pod['since'], now)}" if pod["since"] else ""
        until = f" until {_at(pod['deadline'], now)}" if pod["deadline"] else " without a deadline" if since else ""
        parts.append(f"{pod['cause']}{since}{until}")
    if pod["leases"] is not None:
        parts.append(count(pod["leases"], "lease"))
    elif pod["protected"]:
        parts.append("at work")
    if pod["expectedCompletionTime"]:
        parts.append(f"free about {_at(pod['expectedCompletionTime'], now)}")
    if pod["state"] == State.TERMINATING and pod["finalizers"]:
        parts.append(f"held by finalizers {', '.join(pod['finalizers'])}")
    if pod["trouble"]:
        parts.append(pod["trouble"])
    return ", ".join(parts)


def _at(text: str, now: datetime) -> str:
    return clock(datetime.fromisoformat(text), now)


def style(line: str) -> str:
    """A colour for a terminal; the words say the same without it."""
    words = line.split()
    if any(
        f"{kind.value}=" in line for kind in (Condition.STALLED, Condition.ROLLOUT_FAILED, Condition.EVICTION_BLOCKED)
    ):
        return "red"
    for state, colour in (
        (State.DRAINING, "yellow"),
        (State.TERMINATING, "yellow"),
        (State.NOT_READY, "red"),
        (State.ENDED, "dim"),
        (State.STARTING, "cyan"),
    ):
        if state.value in words[2:5]:
            return colour
    return "bold" if "─ revision " in line or not line.startswith((" ", "│", "├", "└")) else ""
