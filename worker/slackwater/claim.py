"""Values of the lease protocol. Rule: all is frozen and pure; `Claim` is the proof that every write carries.

Durations are seconds; instants are timezone-aware and come from the database's clock, never from a process's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5


class OnInterrupt(StrEnum):
    """What an interruption means for a started task whose submissions are all resolved (rule 13)."""

    FAIL = "fail"
    REQUEUE = "requeue"
    HOLD = "hold"


class Ground(StrEnum):
    """Why a claim is taken away (rule 3)."""

    EXPIRED = "expired"
    WITNESSED = "witnessed"
    STALE = "stale"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    ADMIN = "admin"
    HARD_TIMEOUT = "hard_timeout"
    """Past the type's hard time-out and the time that its own worker has to enforce it."""


class CancelCharge(StrEnum):
    """What a cancelled task costs its user."""

    SUBMITTED = "submitted"
    """All of it once a provider was asked, else nothing."""
    NOTHING = "nothing"
    ALL = "all"


class TaskState(StrEnum):
    """Where a task stands; the last three are ends."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    UNKNOWN = "unknown"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Claim:
    """Identity of one execution: a write whose claim no longer stands changes nothing."""

    task_id: UUID
    epoch: int
    token: UUID
    worker_id: str


@dataclass(frozen=True)
class ClaimedTask:
    """What a worker needs to run a task it has just claimed."""

    claim: Claim
    type: str
    queue: str
    user_id: str
    channel: str
    payload: Any
    checkpoint: Any
    attempts: int
    interruptions: int
    trace_id: str
    lease_until: datetime
    settlement: int


@dataclass(frozen=True)
class Candidate:
    """A queued task as read; `read_at` is database time and bounds how late the claim may come (rule 1)."""

    task_id: UUID
    epoch: int
    type: str
    queue: str
    user_id: str
    channel: str
    read_at: datetime


@dataclass(frozen=True)
class RunningClaim:
    """A running claim as somebody else saw it: the premise of a take-away. `live`: its lease was not over."""

    task_id: UUID
    epoch: int
    token: UUID
    worker_id: str
    pod_uid: str
    pool_uid: str
    lease_until: datetime
    live: bool
    type: str
    queue: str
    user_id: str
    channel: str
    active_at: datetime
    updated_at: datetime
    read_at: datetime
    submission_open: bool
    claimed_at: datetime | None = None


@dataclass(frozen=True)
class Identity:
    """A worker process as it registers itself; `worker_id` is random per process start."""

    worker_id: str
    pool_uid: str
    pool_name: str
    namespace: str
    pod_uid: str
    pod_name: str
    node: str
    revision: str
    queues: tuple[str, ...]
    concurrency: int
    task_types: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """What sweeps and operator know of a task type; `UNDECLARED` stands in for a type that nobody registered.

    `on_lost`: what a lost lease means where that differs from an orderly interruption; None: the same.
    `fed`: the producer's signal judges staleness instead of the execution's. `stale_seconds`: that signal's limit;
    `pending_seconds`: longest wait in a served queue. None means the default of the settings.
    """

    on_interrupt: OnInterrupt = OnInterrupt.FAIL
    fed: bool = False
    stale_seconds: float | None = None
    hard_timeout_seconds: float | None = None
    pending_seconds: float | None = None
    on_lost: OnInterrupt | None = None

    @property
    def lost(self) -> OnInterrupt:
        """What becomes of a task whose worker died or was cut off, if no submission is open."""
        return self.on_lost or self.on_interrupt

    @staticmethod
    def read(document: Mapping[str, Any]) -> Declaration:
        """From the document that the worker wrote at registration; keys this release doesn't know are left alone."""
        return Declaration(
            on_interrupt=OnInterrupt(document.get("on_interrupt", OnInterrupt.FAIL)),
            fed=bool(document.get("fed", False)),
            stale_seconds=document.get("stale_seconds"),
            hard_timeout_seconds=document.get("hard_timeout_seconds"),
            pending_seconds=document.get("pending_seconds"),
            on_lost=OnInterrupt(lost) if (lost := document.get("on_lost")) else None,
        )


UNDECLARED = Declaration()


@dataclass(frozen=True)
class Done:
    """The task's code returned."""

    result: Any


@dataclass(frozen=True)
class Failed:
    """The task's code raised; `retry_after` is the task's own wish in seconds."""

    error_type: str
    message: str
    retry_after: float | None = None


@dataclass(frozen=True)
class HandedBack:
    """The run stopped before its end, and its code is known to have stopped (rule 16)."""

    reason: str
    started: bool
    checkpoint: Any = None


Outcome = Done | Failed | HandedBack


@dataclass(frozen=True)
class Submission:
    """One paid call to a provider. `request` is the stored one: it is sent again, never a new one (rule 11)."""

    task_id: UUID
    name: str
    n: int
    key: str
    provider: str
    request: Any
    reference: str | None = None
    outcome: Any = None
    created: bool = field(default=False, compare=False)

    @property
    def resolved(self) -> bool:
        """The provider has an outcome on record under this key."""
        return self.outcome is not None


def submission_key(task_id: UUID, name: str, n: int) -> str:
    """Idempotency key: a function of the submission's identity, so a lost intent comes back as the same key."""
    return str(uuid5(task_id, f"{name}\x1f{n}"))
