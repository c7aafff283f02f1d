"""A cluster and a store, simulated: what the operator may not assume, happens. Rule: the simulator is the judge.

Every act is carried out as the API server and the store would (uid preconditions, names taken, compare-and-set), and
checked against the promises as it is done: not the plan's opinion of a pod counts, but the store's.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater_operator import actions as a
from slackwater_operator.actions import Plan
from slackwater_operator.drain import Standing, look
from slackwater_operator.names import Cause
from slackwater_operator.plan import plan
from slackwater_operator.pods import free_names
from slackwater_operator.seen import (
    Budget,
    Cordon,
    Exit,
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

START = datetime(2026, 12, 1, tzinfo=UTC)
OWN = (Cause.ROLLOUT, Cause.SCALE_DOWN, Cause.BROKEN)
BAD = "bad"
"""An image that never starts."""


def content(image: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "worker", "image": image}]}}, "queues": ["q"]}


NOT_CONDEMNED = Cordon(0, "", "", START)


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Simulation:
    now: datetime = START
    spec_fields: dict[str, Any] = field(default_factory=lambda: {"replicas": 3, "image": "v1"})
    pods: dict[str, Pod] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    """Workers whose process has ended."""
    cordons: dict[str, Cordon] = field(default_factory=dict)
    leases: dict[str, list[Lease]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=lambda: {n: Node(n) for n in ("n1", "n2", "n3")})
    revisions: dict[str, Revision] = field(default_factory=dict)
    reachable: bool = True
    last_busy: dict[str, datetime] = field(default_factory=dict)
    budget: bool = False
    count: int = 0
    deletions: int = 0

    # -- what the operator sees

    def spec(self) -> PoolSpec:
        fields = dict(self.spec_fields)
        image = fields.pop("image")
        meta = {"uid": "pool", "name": "p", "namespace": "ns", "generation": 1}
        return parse({"metadata": meta, "spec": {**content(image), **fields}})

    def seen(self) -> Observation:
        for uid, leases in self.leases.items():
            if leases:
                self.last_busy[uid] = self.now
        store = StoreView(
            self.now,
            tuple(self.workers.values()),
            dict(self.cordons),
            {uid: tuple(held) for uid, held in self.leases.items() if held},
        )
        return Observation(
            pods=tuple(sorted(self.pods.values(), key=lambda p: p.name)),
            nodes=dict(self.nodes),
            store=store if self.reachable else None,
            revisions=tuple(self.revisions.values()),
            budgets=(Budget("b", ours=True, selects=()),) if self.budget else (),
            last_busy=dict(self.last_busy),
        )

    def plan(self) -> Plan:
        return plan(self.spec(), self.seen(), self.now)

    # -- the judge

    def standing(self, pod: Pod) -> Standing:
        return look(replace(self.seen(), store=self._truth()), pod, self.now).standing

    def _truth(self) -> StoreView:
        return StoreView(
            self.now,
            tuple(self.workers.values()),
            dict(self.cordons),
            {uid: tuple(held) for uid, held in self.leases.items() if held},
        )

    def active(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if self.standing(pod) is Standing.ACTIVE]

    def serves(self, pod: Pod) -> bool:
        free = pod.uid not in self.cordons and pod.cause is None and pod.deleting is None
        registered = any(w.pod_uid == pod.uid and not w.ended for w in self.workers.values())
        return free and pod.ready and registered and not pod.ended

    def serving(self) -> int:
        return sum(self.serves(pod) for pod in self.pods.values() if self.standing(pod) is Standing.ACTIVE)

    def rolling_out(self) -> int:
        """Pods that drain for a rollout and whose container still is somewhere."""
        return sum(
            self.standing(pod) is Standing.DRAINING
            and (pod.cause or self.cordons[pod.uid].cause) == Cause.ROLLOUT
            and (pod.running or not self.cordons.get(pod.uid, NOT_CONDEMNED).condemned)
            for pod in self.pods.values()
        )

    # -- acting, as the API server and the store would

    def act(self, planned: Plan, upto: int | None = None) -> bool:
        """Carry out the first `upto` actions (a crash comes after them). True if anything changed."""
        before = self._state()
        for action in planned.actions[:upto]:
            if self._do(action) is False:
                break
        return bool(self._state() != before)

    def _state(self) -> Any:
        return copy.deepcopy((self.pods, self.cordons, self.revisions, self.budget, self.leases, self.workers))

    def _do(self, action: a.Action) -> bool | None:
        spec = self.spec()
        match action:
            case a.Create():
                self._create(spec, action)
            case a.Drain():
                return self._drain(spec, action)
            case a.CallOff():
                return self._call_off(action)
            case a.Condemn():
                if not self.reachable:
                    return False
                cordon = self.cordons.get(action.uid)
                if cordon and not self.leases.get(action.uid):
                    self.cordons[action.uid] = replace(cordon, condemned=True)
            case a.Delete():
                self._delete(action)
            case a.Protect():
                if pod := self.pods.get(action.uid):
                    self.pods[action.uid] = replace(pod, protected=action.label, kept=action.keep)
            case a.TakeAway():
                cordon = self.cordons[action.uid]
                if cordon.deadline is None or self.now < cordon.deadline + timedelta(seconds=15):
                    raise Broken("work was taken away before the deadline and the worker's fifteen seconds")
                self.leases.pop(action.uid, None)
            case a.Witness():
                if action.worker_id not in self.dead:
                    raise Broken("a living worker was declared dead")
                self._bury(action.worker_id)
            case a.Vanish():
                if action.uid not in self.pods:
                    self.cordons.setdefault(action.uid, Cordon(self._next(), "worker", "Gone", self.now))
            case a.Record():
                self._record(action)
            case a.Mark():
                self._mark(action)
            case a.Forget():
                if any(pod.revision == action.revision for pod in self.pods.values()):
                    raise Broken("a revision in use was forgotten")
                self.revisions.pop(action.revision, None)
            case a.Budget():
                self.budget = action.wanted
        return None

    def _create(self, spec: PoolSpec, action: a.Create) -> None:
        if action.revision not in self.revisions:
            raise Broken("a pod of an unrecorded revision")
        taken = {pod.name: pod for pod in self.pods.values()}
        name = action.name
        while name in taken:
            if taken[name].deleting is None:
                return
            name = next(iter(free_names("p", action.revision, taken)))
        uid = f"u{self._next()}"
        self.pods[uid] = Pod(uid, name, action.revision, self.now)
        if self.reachable and len(self.active()) > spec.desired + spec.surge:
            raise Broken("more pods than replicas + maxSurge")

    def _drain(self, spec: PoolSpec, action: a.Drain) -> bool | None:
        pod = self.pods.get(action.uid)
        if pod is None:
            return None
        served = self.standing(pod) is Standing.ACTIVE and self.serves(pod)
        if action.annotate:
            self.pods[action.uid] = replace(pod, cause=action.cause.value)
        if not self.reachable:
            return False
        self.cordon(action.uid, "operator", action.cause.value, action.deadline)
        if served and action.cause in OWN and self.serving() < spec.desired - spec.unavailable:
            raise Broken(f"{action.cause} left {self.serving()} serving")
        if action.cause is Cause.ROLLOUT and self.rolling_out() > spec.drain.max_draining:
            raise Broken("more pods drain for the rollout than maxDraining")
        if action.cause is Cause.ROLLOUT and (spec.rollout.paused or spec.deleting):
            raise Broken("a paused rollout drained a pod")
        return None

    def _call_off(self, action: a.CallOff) -> bool | None:
        pod = self.pods.get(action.uid)
        if pod is None or pod.deleting is not None:
            return False
        self.pods[action.uid] = replace(pod, cause=None)
        if action.sequence is None:
            return None
        cordon = self.cordons.get(action.uid)
        fits = cordon is not None and cordon.sequence == action.sequence and cordon.ours and not cordon.condemned
        if not self.reachable or not fits:
            return False
        del self.cordons[action.uid]
        return None

    def _delete(self, action: a.Delete) -> None:
        pod = self.pods.get(action.uid)
        if pod is None:
            return
        cordon = self.cordons.get(action.uid)
        if self.leases.get(action.uid):
            raise Broken("a busy pod was deleted")
        if cordon is None or not cordon.condemned:
            raise Broken("a pod was deleted that was not condemned")
        if not self.reachable:
            raise Broken("a pod was deleted while the store gave no answer")
        self.deletions += 1
        self.pods[action.uid] = replace(pod, deleting=pod.deleting or self.now)

    def _record(self, action: a.Record) -> None:
        known = self.revisions.get(action.revision)
        self.revisions[action.revision] = (
            replace(known, number=action.number)
            if known
            else Revision(action.revision, dict(action.content), action.number, self.now)
        )

    def _mark(self, action: a.Mark) -> None:
        revision = self.revisions[action.revision]
        changes: dict[str, dict[str, Any]] = {
            "completed": {"completed": self.now},
            "failed": {"failed": self.now},
            "clock-stop": {"clock_stopped": True, "clock": None},
            "clock-start": {"clock_stopped": False, "clock": self.now},
        }
        self.revisions[action.revision] = replace(revision, **changes[action.what])

    # -- the store and the workers

    def cordon(self, uid: str, origin: str, cause: str, limit: timedelta | None) -> None:
        deadline = self.now + limit if limit is not None else None
        old = self.cordons.get(uid)
        if old is None:
            self.cordons[uid] = Cordon(self._next(), origin, cause, self.now, deadline)
            return
        both = [d for d in (old.deadline, deadline) if d is not None]
        final = "worker" if origin == "worker" else old.origin
        shorter = old.deadline is None or (deadline is not None and deadline < old.deadline)
        number = self._next() if shorter and deadline is not None else old.sequence
        self.cordons[uid] = replace(old, origin=final, deadline=min(both, default=None), sequence=number)

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _bury(self, worker_id: str) -> None:
        worker = self.workers[worker_id]
        self.workers[worker_id] = replace(worker, ended=True)
        held = self.leases.get(worker.pod_uid, [])
        self.leases[worker.pod_uid] = [lease for lease in held if lease.worker_id != worker_id]

    def living(self, uid: str) -> Worker | None:
        return next((w for w in self.workers.values() if w.pod_uid == uid and w.id not in self.dead), None)

    def bad(self, pod: Pod) -> bool:
        revision = self.revisions.get(pod.revision)
        return revision is not None and revision.content == content(BAD)

    def start(self, pod: Pod) -> None:
        """The kubelet starts the container; a bad image never comes up."""
        node = pod.node or min(
            (n for n in self.nodes.values() if not n.taints and n.reachable), key=lambda n: n.name, default=None
        )
        if node is None or pod.ended or pod.deleting is not None:
            return
        name = node if isinstance(node, str) else node.name
        if not self.nodes[name].reachable:
            return
        if self.bad(pod):
            self.pods[pod.uid] = replace(pod, node=name, trouble=Trouble("ErrImagePull", "no such image"))
            return
        self.pods[pod.uid] = replace(pod, node=name, phase="Running", running=True, trouble=None)

    def register(self, pod: Pod) -> None:
        if not pod.running or self.living(pod.uid) or not self.reachable:
            return
        worker = Worker(f"w{self._next()}", pod.uid, pod.name, self.now, self.now)
        self.workers[worker.id] = worker

    def become_ready(self, pod: Pod) -> None:
        if pod.running and not pod.ready and pod.deleting is None and self.living(pod.uid):
            self.pods[pod.uid] = replace(pod, ready=True, ready_changed=self.now)

    def claim(self, uid: str) -> None:
        worker = self.living(uid)
        if worker and not worker.ended and uid not in self.cordons and self.reachable:
            lease = Lease(f"t{self._next()}", "t", worker.id, self.now, self.now + timedelta(seconds=45))
            self.leases.setdefault(uid, []).append(lease)

    def crash(self, pod: Pod) -> None:
        worker = self.living(pod.uid)
        if not pod.running:
            return
        exits = (Exit(worker.id, "Error", 137),) if worker else ()
        if worker:
            self.dead.add(worker.id)
        self.pods[pod.uid] = replace(
            pod,
            running=False,
            ready=False,
            ready_changed=self.now,
            restarts=pod.restarts + 1,
            exits=exits,
            trouble=Trouble("CrashLoopBackOff", "back-off"),
        )

    def sweep(self) -> None:
        """What died or stopped renewing is taken back once its lease is over."""
        if not self.reachable:
            return
        for uid, held in list(self.leases.items()):
            self.leases[uid] = [lease for lease in held if lease.live(self.now)]

    def beat(self) -> None:
        """Heartbeats and renewals of everything that lives and can reach the store."""
        if not self.reachable:
            return
        for worker in list(self.workers.values()):
            pod = self.pods.get(worker.pod_uid)
            cut_off = pod is not None and pod.node in self.nodes and not self.nodes[pod.node].reachable
            if worker.id in self.dead or cut_off:
                continue
            self.workers[worker.id] = replace(worker, seen_at=self.now)
            held = self.leases.get(worker.pod_uid, [])
            until = self.now + timedelta(seconds=45)
            self.leases[worker.pod_uid] = [replace(x, until=until) if x.worker_id == worker.id else x for x in held]

    def sigterm(self, pod: Pod) -> None:
        """The worker of a deleted pod hears of it: it cordons itself, and leaves once it is idle."""
        if pod.deleting is None or (pod.node and not self.nodes[pod.node].reachable):
            return
        if not pod.running:
            self.pods.pop(pod.uid, None)
            return
        if self.reachable:
            self.cordon(pod.uid, "worker", "Terminated", timedelta(hours=1))
        if not self.leases.get(pod.uid) or self.living(pod.uid) is None:
            if worker := self.living(pod.uid):
                self.dead.add(worker.id)
                self.workers[worker.id] = replace(worker, ended=True)
            self.pods.pop(pod.uid, None)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
