"""WorkerPool → PoolSpec. Rule: the only reader of the raw resource; every figure leaves it with a type and a unit.

The revision is made of what the user wrote (template, queues, concurrency, secret, restartedAt) and of nothing
that this program adds, so that an upgrade of the operator rolls nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from slackwater_operator.errors import InvalidSpec
from slackwater_operator.names import WORKER_CONTAINER, Cause

MAX_REPLICAS = 10_000
GRACE_MARGIN = timedelta(seconds=30)
GRACE_FOR_EVER = timedelta(days=7)
_UNITS = {"h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d{1,7})([hms]))+")
_PART = re.compile(r"(\d{1,7})([hms])")
_PERCENT = re.compile(r"(0|[1-9]\d?|100)%")
_CAUSES = ("Rollout", "ScaleDown", "NodeDrain", "Spot", "Admin")
_REVISION_FIELDS = ("template", "queues", "concurrency", "storeSecretRef", "restartedAt")


class Admission(StrEnum):
    OPEN = "Open"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"
    CLOSED = "Closed"


@dataclass(frozen=True)
class Amount:
    """A number of pods or a share of the replicas."""

    value: int
    percent: bool = False

    def of(self, replicas: int, *, up: bool) -> int:
        if not self.percent:
            return self.value
        return -(-self.value * replicas // 100) if up else self.value * replicas // 100


@dataclass(frozen=True)
class Drain:
    deadline: timedelta = timedelta(minutes=90)
    waits: bool = False
    max_draining: int = 3
    deadlines: tuple[tuple[Cause, timedelta], ...] = ()


@dataclass(frozen=True)
class Rollout:
    paused: bool = False
    surge: Amount = Amount(1)
    unavailable: Amount = Amount(0)
    partition: int = 0
    min_ready: timedelta = timedelta(0)
    progress_deadline: timedelta = timedelta(minutes=10)
    rolls_back: bool = False
    history_limit: int = 10


@dataclass(frozen=True)
class PoolSpec:
    uid: str
    name: str
    namespace: str
    generation: int
    replicas: int
    content: Mapping[str, Any]
    """What the revision is made of, as written."""
    queues: tuple[str, ...]
    concurrency: int
    admission: Admission = Admission.OPEN
    deleting: bool = False
    drain: Drain = Drain()
    rollout: Rollout = Rollout()
    budget: bool = True
    """A disruption budget over protected pods."""
    protects: bool = True
    """evictionPolicy DrainFirst: busy pods are marked against eviction."""

    @property
    def desired(self) -> int:
        return 0 if self.admission is Admission.HOLD_AND_DRAIN else self.replicas

    @property
    def surge(self) -> int:
        return self.rollout.surge.of(self.desired, up=True)

    @property
    def unavailable(self) -> int:
        allowed = self.rollout.unavailable.of(self.desired, up=False)
        # Both round to nothing (a small percentage of few pods): one pod at a time, as a Deployment does.
        return min(self.desired, allowed if allowed or self.surge else 1)

    def deadline(self, cause: Cause) -> timedelta | None:
        """How long a drain of this cause may take; None = for ever."""
        return None if self.drain.waits else dict(self.drain.deadlines).get(cause, self.drain.deadline)

    @property
    def grace(self) -> timedelta:
        return GRACE_FOR_EVER if self.drain.waits else self.drain.deadline + GRACE_MARGIN


def duration(field: str, text: Any) -> timedelta:
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise InvalidSpec(field, f"must be a duration like 90m or 1h30m, not {text!r}")
    found = timedelta(seconds=sum(int(n) * _UNITS[unit] for n, unit in _PART.findall(text)))
    if not timedelta(seconds=1) <= found <= timedelta(days=7):
        raise InvalidSpec(field, f"must be between 1s and 168h, not {text}")
    return found


def amount(field: str, raw: Any) -> Amount:
    if isinstance(raw, str) and _PERCENT.fullmatch(raw):
        return Amount(int(raw[:-1]), percent=True)
    return Amount(integer(field, raw, 0, MAX_REPLICAS))


def integer(field: str, raw: Any, low: int, high: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        raise InvalidSpec(field, f"must be a whole number from {low} to {high}, not {raw!r}")
    return raw


def one_of(field: str, raw: Any, allowed: tuple[str, ...]) -> str:
    if raw not in allowed:
        raise InvalidSpec(field, f"must be one of {', '.join(allowed)}, not {raw!r}")
    return str(raw)


def revision_content(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part that makes a revision; an absent field and a null one are the same."""
    return {key: spec[key] for key in _REVISION_FIELDS if spec.get(key) is not None}


def parse(body: Mapping[str, Any]) -> PoolSpec:
    meta, spec = body["metadata"], body.get("spec") or {}
    if len(meta["name"]) > 40:
        raise InvalidSpec("metadata.name", "must be at most 40 characters")
    queues = spec.get("queues") or ["default"]
    disruption = spec.get("disruption") or {}
    drain_first = one_of(
        "disruption.evictionPolicy", disruption.get("evictionPolicy", "DrainFirst"), ("DrainFirst", "Allow")
    )
    _check_template(spec.get("template"))
    return PoolSpec(
        uid=meta["uid"],
        name=meta["name"],
        namespace=meta["namespace"],
        generation=meta.get("generation", 0),
        deleting=meta.get("deletionTimestamp") is not None,
        replicas=integer("replicas", spec.get("replicas", 1), 0, MAX_REPLICAS),
        content=revision_content(spec),
        queues=tuple(queues),
        concurrency=integer("concurrency", spec.get("concurrency", 1), 1, 1000),
        admission=Admission(one_of("admission", spec.get("admission", "Open"), tuple(Admission))),
        drain=_drain(spec.get("drain") or {}),
        rollout=_rollout(spec.get("rollout") or {}),
        budget=disruption.get("podDisruptionBudget", True) and drain_first == "DrainFirst",
        protects=drain_first == "DrainFirst",
    )


def _check_template(template: Any) -> None:
    containers = ((template or {}).get("spec") or {}).get("containers") or []
    if not any(c.get("name") == WORKER_CONTAINER for c in containers):
        raise InvalidSpec("template.spec.containers", f"must have a container named `{WORKER_CONTAINER}`")


def _drain(raw: Mapping[str, Any]) -> Drain:
    deadline = duration("drain.deadline", raw.get("deadline", "90m"))
    by_cause = {"Spot": "90s", **(raw.get("deadlines") or {})}
    return Drain(
        deadline=deadline,
        waits=one_of("drain.onDeadline", raw.get("onDeadline", "Fence"), ("Fence", "Wait")) == "Wait",
        max_draining=integer("drain.maxDraining", raw.get("maxDraining", 3), 1, MAX_REPLICAS),
        deadlines=tuple(
            (Cause(one_of("drain.deadlines", name, _CAUSES)), duration(f"drain.deadlines.{name}", text))
            for name, text in sorted(by_cause.items())
        ),
    )


def _rollout(raw: Mapping[str, Any]) -> Rollout:
    found = Rollout(
        paused=bool(raw.get("paused", False)),
        surge=amount("rollout.maxSurge", raw.get("maxSurge", 1)),
        unavailable=amount("rollout.maxUnavailable", raw.get("maxUnavailable", 0)),
        partition=integer("rollout.partition", raw.get("partition", 0), 0, MAX_REPLICAS),
        min_ready=timedelta(seconds=integer("rollout.minReadySeconds", raw.get("minReadySeconds", 0), 0, 86_400)),
        progress_deadline=duration("rollout.progressDeadline", raw.get("progressDeadline", "10m")),
        rolls_back=one_of("rollout.onFailure", raw.get("onFailure", "Stop"), ("Stop", "Rollback")) == "Rollback",
        history_limit=integer("rollout.revisionHistoryLimit", raw.get("revisionHistoryLimit", 10), 1, 100),
    )
    if not found.surge.value and not found.unavailable.value:
        raise InvalidSpec("rollout", "maxSurge and maxUnavailable must not both be 0")
    return found
