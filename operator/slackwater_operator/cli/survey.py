"""Pool and pods, as far as the API server knows → values. Rule: what only the store knows is said to be unknown.

Leases are per revision in the pool's status, and per pod only of pods that drain; of any other pod the label that
protects it says no more than that it works, or has worked within the last minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from slackwater_operator import reading
from slackwater_operator.names import Condition, Reason
from slackwater_operator.seen import Pod
from slackwater_operator.spec import revision_content

Raw = Mapping[str, Any]


class State(StrEnum):
    READY = "Ready"
    STARTING = "Starting"
    NOT_READY = "NotReady"
    """It runs and was ready, or never got there; the trouble, if there is one, is named beside it."""
    DRAINING = "Draining"
    TERMINATING = "Terminating"
    ENDED = "Ended"


@dataclass(frozen=True)
class Going:
    """An entry of status.draining: the pod's cordon, as the operator last read it."""

    cause: str
    since: datetime | None
    deadline: datetime | None
    leases: int
    expected: datetime | None


@dataclass(frozen=True)
class Sight:
    pod: Pod
    going: Going | None

    @property
    def state(self) -> State:
        if self.pod.deleting is not None:
            return State.TERMINATING
        if self.pod.ended:
            return State.ENDED
        if self.pod.cause is not None or self.going is not None:
            return State.DRAINING
        if self.pod.ready:
            return State.READY
        return State.STARTING if self.pod.trouble is None and not self.pod.running else State.NOT_READY

    @property
    def cause(self) -> str:
        return self.pod.cause or (self.going.cause if self.going else "")


def goings(pool: Raw) -> dict[str, Going]:
    """By pod uid."""
    return {
        entry["uid"]: Going(
            cause=entry.get("cause", ""),
            since=reading.instant(entry.get("since")),
            deadline=reading.instant(entry.get("deadline")),
            leases=int(entry.get("leases", 0)),
            expected=reading.instant(entry.get("expectedCompletionTime")),
        )
        for entry in status_of(pool).get("draining") or []
        if entry.get("uid")
    }


def sights(pool: Raw, pods: Iterable[Raw]) -> list[Sight]:
    """Of this pool's own pods; a namesake's label alone makes none its own."""
    known = goings(pool)
    own = (reading.pod(p) for p in pods if reading.owner_uid(p) == pool["metadata"]["uid"])
    return [Sight(pod, known.get(pod.uid)) for pod in sorted(own, key=lambda p: p.name)]


def status_of(pool: Raw) -> Raw:
    return pool.get("status") or {}


def spec_of(pool: Raw) -> Raw:
    return pool.get("spec") or {}


def rollout_of(pool: Raw) -> Raw:
    return spec_of(pool).get("rollout") or {}


def content_of(pool: Raw) -> dict[str, Any]:
    return revision_content(spec_of(pool))


def condition(pool: Raw, kind: Condition) -> Raw:
    return next((c for c in status_of(pool).get("conditions") or [] if c.get("type") == kind.value), {})


def up_to_date(pool: Raw) -> bool:
    """Whether the operator has seen the spec that stands."""
    return bool(status_of(pool).get("observedGeneration", -1) == pool["metadata"].get("generation", 0))


def worth_saying(pool: Raw) -> list[Raw]:
    """Conditions that tell a person something: where the pool goes, and everything that is wrong."""
    told = []
    progressing = condition(pool, Condition.PROGRESSING)
    if progressing and progressing.get("reason") != Reason.COMPLETE.value:
        told.append(progressing)
    store = condition(pool, Condition.STORE_REACHABLE)
    if store.get("status") == "False":
        told.append(store)
    for kind in (Condition.ROLLOUT_FAILED, Condition.EVICTION_BLOCKED, Condition.STALLED):
        found = condition(pool, kind)
        if found.get("status") == "True" or found.get("reason") == Reason.NODES_UNREADABLE.value:
            told.append(found)
    return told
