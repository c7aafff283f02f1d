"""Wishes → patches. Rule: a patch says what its caller asked for and nothing else, and names what it was made for.

All are JSON merge patches. A rollback has to take out what its revision did not have, so its patch is made from the
difference; the resource version in it makes the API server refuse it if the pool has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater_operator.cli.survey import Raw, content_of, rollout_of
from slackwater_operator.cli.words import Json, stamp
from slackwater_operator.names import ANNOTATION_CAUSE, RECALLABLE, Cause
from slackwater_operator.seen import Pod, Revision


class NoSuchRevision(Exception):
    """There is no revision to go back to, or not this one."""


class Impossible(Exception):
    """What stands forbids it."""


@dataclass(frozen=True)
class Change:
    said: str
    patch: Json | None
    """None: it stands so already."""


def paused(pool: Raw, wanted: bool) -> Change:
    name = pool["metadata"]["name"]
    word = "paused" if wanted else "resumed"
    if bool(rollout_of(pool).get("paused")) == wanted:
        return Change(f"{name} was {'paused' if wanted else 'not paused'} already", None)
    return Change(f"{name} {word}", {"spec": {"rollout": {"paused": wanted}}})


def restart(pool: Raw, now: datetime) -> Change:
    return Change(f"{pool['metadata']['name']} restarts", {"spec": {"restartedAt": stamp(now)}})


def target(pool: Raw, revisions: Iterable[Revision], to: str | None) -> Revision:
    """The revision that `to` means, a number or a name; without it the last one that worked and is not the written."""
    known, written = list(revisions), content_of(pool)
    if to is not None:
        found = next((r for r in known if to in (str(r.number), r.name)), None)
        if found is None:
            there = ", ".join(f"{r.number} ({r.name})" for r in sorted(known, key=lambda r: -r.number)) or "none"
            raise NoSuchRevision(f"{pool['metadata']['name']} has no revision {to}; it has {there}")
        return found
    worked = [r for r in known if r.completed is not None and r.content != written]
    if not worked:
        raise NoSuchRevision(
            f"{pool['metadata']['name']} has no earlier revision that ever completed; name one with --to"
        )
    return max(worked, key=lambda r: r.number)


def rollback(pool: Raw, chosen: Revision) -> Change:
    meta, before, after = pool["metadata"], content_of(pool), dict(chosen.content)
    label = f"revision {chosen.number} ({chosen.name})"
    if before == after:
        return Change(f"{meta['name']} is at {label} already", None)
    patch = difference(before, after)
    if merged(before, patch) != after:
        raise Impossible(f"{label} has empty (null) fields that no merge patch can write; apply its manifest instead")
    return Change(
        f"{meta['name']} goes back to {label}",
        {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": patch},
    )


def drain(pod: Pod) -> Change:
    if pod.deleting is not None:
        return Change(f"{pod.name} is being deleted already", None)
    if pod.cause is not None and pod.cause not in RECALLABLE:
        return Change(f"{pod.name} drains already ({pod.cause})", None)
    # A drain of the operator's own wish may be called off by it; a person's may not.
    return Change(f"{pod.name} drains", _annotation(pod, Cause.ADMIN.value))


def undrain(pod: Pod) -> Change:
    if pod.deleting is not None:
        raise Impossible(f"{pod.name} is being deleted; nothing calls that off")
    if pod.cause is None:
        return Change(f"{pod.name} has no drain that can be called off", None)
    return Change(f"{pod.name}: drain called off (was {pod.cause})", _annotation(pod, None))


def comes_back(pod: Pod) -> str:
    """What to tell somebody who calls off a drain that has a reason of its own."""
    if pod.cause in (None, Cause.ADMIN.value):
        return ""
    return (
        f"{pod.cause} was not asked for by hand: while its reason stands the operator drains this pod, or one like it"
    )


def _annotation(pod: Pod, value: str | None) -> Json:
    """The uid is a precondition: a namesake is answered with a conflict."""
    return {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION_CAUSE: value}}}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """The merge patch (RFC 7396) that makes `after` of `before`."""
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        was = before.get(key)
        if key in before and was == value:
            continue
        patch[key] = difference(was, value) if isinstance(was, Mapping) and isinstance(value, Mapping) else value
    return patch


def merged(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """What the API server makes of it."""
    made = dict(before)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping):
            was = made.get(key)
            made[key] = merged(was if isinstance(was, Mapping) else {}, value)
        else:
            made[key] = value
    return made
