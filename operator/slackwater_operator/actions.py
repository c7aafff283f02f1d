"""What to do, as values. Rule: each names what it is about and why; each may be repeated without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from slackwater_operator.names import Cause


@dataclass(frozen=True)
class Create:
    name: str
    """`<pool>-<revision>-<ordinal>`: a lagging view meets AlreadyExists and makes no extra pod."""
    revision: str
    reason: str
    uid: str = ""


@dataclass(frozen=True)
class Drain:
    """Annotation, then the store's cordon. Repeated, it only shortens the deadline."""

    uid: str
    pod: str
    cause: Cause
    deadline: timedelta | None
    reason: str
    annotate: bool = True


@dataclass(frozen=True)
class CallOff:
    """The annotation goes (answered without deletionTimestamp), then the cordon of this sequence."""

    uid: str
    pod: str
    sequence: int | None
    reason: str


@dataclass(frozen=True)
class Condemn:
    """Ask the store, in a statement later than the cordon, whether the pod holds nothing; final if so."""

    uid: str
    pod: str
    reason: str


@dataclass(frozen=True)
class Protect:
    uid: str
    pod: str
    label: bool
    """What the disruption budget selects."""
    keep: bool
    """The autoscalers' annotations."""
    reason: str


@dataclass(frozen=True)
class Delete:
    """Only ever of a condemned pod, with its uid as precondition."""

    uid: str
    pod: str
    grace: timedelta | None
    reason: str


@dataclass(frozen=True)
class TakeAway:
    """Past the deadline: end every claim that the pod's workers still have (ground: deadline)."""

    uid: str
    pod: str
    reason: str


@dataclass(frozen=True)
class Witness:
    """The kubelet saw this worker's process end: its claims come back at once."""

    uid: str
    worker_id: str
    reason: str


@dataclass(frozen=True)
class Vanish:
    """The store knows workers of pods that the API server no longer has: cordon these uids for good."""

    uid: str
    pod: str
    reason: str


@dataclass(frozen=True)
class Record:
    """Store a revision, after a dry run of its pod, or raise its number if it exists."""

    revision: str
    number: int
    content: Mapping[str, Any] = field(hash=False)
    exists: bool
    reason: str
    uid: str = ""


@dataclass(frozen=True)
class Mark:
    """Annotate a revision: completed, failed, or its progress clock stopped or started."""

    revision: str
    what: str
    """completed | failed | clock-stop | clock-start"""
    reason: str
    uid: str = ""


@dataclass(frozen=True)
class Forget:
    """Remove a revision beyond the history limit."""

    revision: str
    reason: str
    uid: str = ""


@dataclass(frozen=True)
class Budget:
    """Make or remove the pool's disruption budget."""

    wanted: bool
    reason: str
    uid: str = ""


Action = (
    Create
    | Drain
    | CallOff
    | Condemn
    | Protect
    | Delete
    | TakeAway
    | Witness
    | Vanish
    | Record
    | Mark
    | Forget
    | Budget
)
DECISIONS = (Create, Drain, CallOff)
"""What changes where the pool is going; all others carry out what was decided."""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    look_again: timedelta | None = None
    """After this time something changes by itself."""
    notes: tuple[str, ...] = ()
    """Why nothing more is done, for people."""
