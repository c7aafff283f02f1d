"""What was seen, as values with predicates. Rule: nothing here decides; what is not known is said to be unknown.

Instants of pods and nodes come from the API server's clock, instants of workers, cordons and leases from the
database's; `now` is the database's where the store answered. Limits that compare the two are a minute or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def covers(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True)
class Exit:
    """The kubelet's witness of a container's end (rule 9)."""

    worker_id: str
    reason: str
    code: int


@dataclass(frozen=True)
class Trouble:
    """Why a pod does not come to work, in Kubernetes' words."""

    reason: str
    message: str


@dataclass(frozen=True)
class Pod:
    uid: str
    name: str
    revision: str
    created: datetime
    node: str = ""
    phase: str = "Pending"
    running: bool = False
    """The container `worker` runs now."""
    ready: bool = False
    ready_changed: datetime | None = None
    deleting: datetime | None = None
    """deletionTimestamp: when the API server's grace ends."""
    cause: str | None = None
    """The annotation: what this operator, or an admin, intends."""
    protected: bool = False
    kept: bool = False
    """The autoscalers' annotations are on it."""
    restarts: int = 0
    trouble: Trouble | None = None
    exits: tuple[Exit, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    finalizers: tuple[str, ...] = ()
    version: int = 0

    @property
    def ended(self) -> bool:
        return self.phase in ("Failed", "Succeeded")

    @property
    def broken(self) -> bool:
        """Nothing runs in it now, and it has failed already or can't start."""
        return not self.running and (self.trouble is not None or self.restarts > 0)

    @property
    def never_started(self) -> bool:
        return not self.running and not self.restarts and not self.exits


@dataclass(frozen=True)
class Node:
    name: str
    reachable: bool = True
    changed: datetime | None = None
    """Since when it is (un)reachable."""
    taints: tuple[Taint, ...] = ()
    deleting: bool = False


@dataclass(frozen=True)
class Worker:
    id: str
    pod_uid: str
    pod_name: str
    registered_at: datetime
    seen_at: datetime
    ended: bool = False


@dataclass(frozen=True)
class Cordon:
    sequence: int
    origin: str
    cause: str
    since: datetime
    deadline: datetime | None = None
    condemned: bool = False

    @property
    def ours(self) -> bool:
        return self.origin == "operator"


@dataclass(frozen=True)
class Lease:
    task_id: str
    type: str
    worker_id: str
    since: datetime
    until: datetime
    expected_end: datetime | None = None

    def live(self, now: datetime) -> bool:
        return self.until > now


@dataclass(frozen=True)
class StoreView:
    """One reading of the store, all from one statement's moment `now`."""

    now: datetime
    workers: tuple[Worker, ...] = ()
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    """Of cordoned pods only, by pod uid."""
    leases: Mapping[str, tuple[Lease, ...]] = field(default_factory=dict)
    """Running claims, expired ones included, by pod uid."""
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Revision:
    """A ControllerRevision. `name` is the hash that pods carry as their label."""

    name: str
    content: Mapping[str, Any]
    number: int
    created: datetime
    completed: datetime | None = None
    failed: datetime | None = None
    clock: datetime | None = None
    """The progress deadline counts from here at the earliest."""
    clock_stopped: bool = False


@dataclass(frozen=True)
class Budget:
    name: str
    ours: bool
    selects: tuple[tuple[str, str], ...]
    """matchLabels; expressions are not evaluated, such a budget counts as foreign and matching nothing."""


@dataclass(frozen=True)
class Observation:
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] | None = field(default_factory=dict)
    """None: no right to read nodes, so no node drains."""
    store: StoreView | None = None
    store_error: str = ""
    revisions: tuple[Revision, ...] = ()
    budgets: tuple[Budget, ...] = ()
    template_labels: tuple[tuple[str, str], ...] = ()
    last_busy: Mapping[str, datetime] = field(default_factory=dict)
    """When this process last saw a lease on a pod; absent after a restart, which protects for longer."""

    @cached_property
    def workers_by_pod(self) -> Mapping[str, tuple[Worker, ...]]:
        found: dict[str, list[Worker]] = {}
        for worker in self.store.workers if self.store else ():
            found.setdefault(worker.pod_uid, []).append(worker)
        return {uid: tuple(workers) for uid, workers in found.items()}

    def registered(self, uid: str) -> bool:
        return any(not w.ended for w in self.workers_by_pod.get(uid, ()))

    def heard_of(self, uid: str) -> datetime | None:
        return max((w.seen_at for w in self.workers_by_pod.get(uid, ())), default=None)

    def cordon(self, uid: str) -> Cordon | None:
        return self.store.cordons.get(uid) if self.store else None

    def leases(self, uid: str) -> tuple[Lease, ...]:
        return self.store.leases.get(uid, ()) if self.store else ()

    def node(self, pod: Pod) -> Node | None:
        return self.nodes.get(pod.node) if self.nodes is not None and pod.node else None
