"""Small words to say a situation in: pods, nodes, leases, cordons. Rule: a default is the dullest possible case."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from slackwater_operator.actions import Action, Create, Drain, Forget, Mark, Plan, Protect, Record
from slackwater_operator.names import Cause
from slackwater_operator.plan import plan
from slackwater_operator.pods import revision_hash
from slackwater_operator.seen import (
    Budget,
    Cordon,
    Lease,
    Node,
    Observation,
    Pod,
    Revision,
    StoreView,
    Trouble,
    Worker,
)
from slackwater_operator.spec import PoolSpec, parse

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def content(image: str) -> dict[str, Any]:
    return {
        "template": {"spec": {"containers": [{"name": "worker", "image": image}]}},
        "queues": ["default"],
        "concurrency": 1,
        "storeSecretRef": {"name": "slackwater-store"},
    }


def hash_of(image: str) -> str:
    return revision_hash(content(image))


OLD, NEW = hash_of("old"), hash_of("new")


def pool(replicas: int, image: str = "new", **spec: Any) -> PoolSpec:
    meta = {"uid": "pool", "name": "p", "namespace": "ns", "generation": 1}
    return parse({"metadata": meta, "spec": {"replicas": replicas, **content(image), **spec}})


@dataclass(frozen=True)
class Situation:
    """One pod and what the store knows of it."""

    pod: Pod
    cordon: Cordon | None = None
    leases: tuple[Lease, ...] = ()
    worker: Worker | None = None

    def but(self, **changes: Any) -> Situation:
        return replace(self, pod=replace(self.pod, **changes))

    def cordoned(
        self,
        cause: Cause = Cause.ROLLOUT,
        *,
        origin: str = "operator",
        condemned: bool = False,
        deadline: timedelta | None = timedelta(minutes=60),
        annotated: bool = True,
    ) -> Situation:
        until = NOW + deadline if deadline is not None else None
        cordon = Cordon(7, origin, cause.value, NOW - seconds(60), until, condemned)
        pod = replace(self.pod, cause=cause.value) if annotated else self.pod
        return replace(self, pod=pod, cordon=cordon)

    def busy(self, n: int = 1, *, since: timedelta = timedelta(minutes=1), ends: timedelta | None = None) -> Situation:
        end = NOW + ends if ends is not None else None
        uid = self.pod.uid
        leases = tuple(Lease(f"{uid}-{i}", "t", f"w-{uid}", NOW - since, NOW + seconds(30), end) for i in range(n))
        return replace(self, leases=leases)


def serving(name: str, revision: str = NEW, node: str = "n1") -> Situation:
    """A pod that works and has nothing to do."""
    pod = Pod(
        uid=name,
        name=name,
        revision=revision,
        created=LONG_AGO,
        node=node,
        phase="Running",
        running=True,
        ready=True,
        ready_changed=LONG_AGO,
    )
    return Situation(pod, worker=Worker(f"w-{name}", name, name, LONG_AGO, NOW - seconds(5)))


def pending(name: str, revision: str = NEW) -> Situation:
    """Created, not scheduled or not started yet."""
    return Situation(Pod(uid=name, name=name, revision=revision, created=NOW - seconds(5)))


def silent(name: str, revision: str = NEW) -> Situation:
    """Its container runs and never registered: nobody knows what it does."""
    base = serving(name, revision)
    return replace(base.but(ready=False, ready_changed=NOW - seconds(5)), worker=None)


def broken(name: str, revision: str = NEW, reason: str = "ImagePullBackOff") -> Situation:
    return pending(name, revision).but(node="n1", trouble=Trouble(reason, "nope"))


def ended(name: str, revision: str = NEW) -> Situation:
    return serving(name, revision).but(
        phase="Failed", running=False, ready=False, trouble=Trouble("Evicted", "low on memory")
    )


def revision(image: str, number: int, *, completed: bool = False, **more: Any) -> Revision:
    at = LONG_AGO + seconds(number) if completed else None
    return Revision(hash_of(image), content(image), number, LONG_AGO, completed=at, **more)


ROLLED = (revision("new", 2, completed=True), revision("old", 1, completed=True))
ROLLING = (revision("new", 2), revision("old", 1, completed=True))


@dataclass(frozen=True)
class World:
    pods: tuple[Situation, ...] = ()
    revisions: tuple[Revision, ...] = ROLLED
    nodes: dict[str, Node] | None = field(default_factory=lambda: {"n1": Node("n1"), "n2": Node("n2")})
    reachable: bool = True
    budgets: tuple[Budget, ...] = (Budget("p-protected", ours=True, selects=()),)
    last_busy: dict[str, datetime] = field(default_factory=dict)
    strangers: tuple[Worker, ...] = ()
    now: datetime = NOW

    def seen(self) -> Observation:
        workers = [s.worker for s in self.pods if s.worker] + list(self.strangers)
        store = StoreView(
            now=self.now,
            workers=tuple(workers),
            cordons={s.pod.uid: s.cordon for s in self.pods if s.cordon},
            leases={s.pod.uid: s.leases for s in self.pods if s.leases},
        )
        return Observation(
            pods=tuple(s.pod for s in self.pods),
            nodes=self.nodes,
            store=store if self.reachable else None,
            revisions=self.revisions,
            budgets=self.budgets,
            last_busy=self.last_busy,
        )

    def plan(self, spec: PoolSpec) -> Plan:
        return plan(spec, self.seen(), self.now)


T = TypeVar("T")


def of(kind: type[T], found: Plan) -> list[T]:
    return [action for action in found.actions if isinstance(action, kind)]


def names(kind: type[Any], found: Plan) -> list[str]:
    """The pods that these actions are about."""
    return [getattr(action, "pod", None) or action.name for action in of(kind, found)]


def said(found: Plan) -> list[str]:
    """All actions in words, for a table's right-hand column."""
    return [_word(action) for action in found.actions if not isinstance(action, Record | Mark | Forget | Protect)]


def _word(action: Action) -> str:
    kind = type(action).__name__.lower()
    if isinstance(action, Create):
        return f"{kind} {'new' if action.revision == NEW else 'old' if action.revision == OLD else '?'}"
    if isinstance(action, Drain):
        return f"{kind} {action.pod} {action.cause}"
    return f"{kind} {getattr(action, 'pod', '') or getattr(action, 'worker_id', '')}".strip()


def after(*pods: Situation, **world: Any) -> World:
    return World(tuple(pods), **world)
