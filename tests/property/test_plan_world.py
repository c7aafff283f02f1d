"""From any state, planning and acting until quiet reaches the desired pods, and no promise is broken on the way.

Hypothesis plays the cluster: containers that start, crash or never come, leases that begin and end, nodes that go or
are cut off, people who edit, delete and cordon, a store that gives no answer, an operator that dies after any act. The
simulated world (world.py) judges every single act.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slackwater_operator.actions import DECISIONS, Condemn, Record, TakeAway, Witness
from slackwater_operator.names import Cause
from slackwater_operator.seen import Node, Pod, Taint
from tests.property.world import BAD, Simulation

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
SPOT = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")
FINDINGS = (Witness, TakeAway, Record, Condemn)
picks = st.integers(min_value=0, max_value=50)
ROLLOUTS = st.sampled_from(
    [
        {"maxSurge": 1, "maxUnavailable": 0},
        {"maxSurge": 0, "maxUnavailable": 1},
        {"maxSurge": 2, "maxUnavailable": 1},
        {"maxSurge": "50%", "maxUnavailable": "50%"},
        {"maxSurge": 1, "maxUnavailable": 0, "paused": True},
        {"maxSurge": 1, "maxUnavailable": 1, "partition": 2},
        {"maxSurge": 1, "maxUnavailable": 0, "onFailure": "Rollback", "progressDeadline": "2m"},
        {"maxSurge": 1, "maxUnavailable": 0, "minReadySeconds": 20},
    ]
)


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sim = Simulation()

    def pick(self, n: int) -> Pod | None:
        pods = sorted(self.sim.pods.values(), key=lambda p: p.uid)
        return pods[n % len(pods)] if pods else None

    # -- people

    @rule(replicas=st.integers(0, 5))
    def scale(self, replicas: int) -> None:
        self.sim.spec_fields["replicas"] = replicas

    @rule(image=st.sampled_from(["v1", "v2", "v3", BAD]))
    def edit(self, image: str) -> None:
        self.sim.spec_fields["image"] = image

    @rule(rollout=ROLLOUTS, draining=st.integers(1, 3))
    def tune(self, rollout: dict[str, Any], draining: int) -> None:
        self.sim.spec_fields["rollout"] = rollout
        self.sim.spec_fields["drain"] = {"maxDraining": draining, "deadline": "5m"}

    @rule(admission=st.sampled_from(["Open", "Hold", "HoldAndDrain"]))
    def admit(self, admission: str) -> None:
        self.sim.spec_fields["admission"] = admission

    @rule(n=picks, cause=st.sampled_from([Cause.ADMIN.value, None]))
    def annotate(self, n: int, cause: str | None) -> None:
        if pod := self.pick(n):
            self.sim.pods[pod.uid] = replace(pod, cause=cause)

    @rule(n=picks)
    def delete(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.pods[pod.uid] = replace(pod, deleting=pod.deleting or self.sim.now)

    @rule(n=picks)
    def force_delete(self, n: int) -> None:
        """The object goes, the process stays."""
        if pod := self.pick(n):
            del self.sim.pods[pod.uid]

    # -- the cluster

    @rule(n=picks)
    def start(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.start(pod)

    @rule(n=picks)
    def register(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.register(pod)

    @rule(n=picks)
    def become_ready(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.become_ready(pod)

    @rule()
    def all_come_up(self) -> None:
        for step in (self.sim.start, self.sim.register, self.sim.become_ready):
            for pod in list(self.sim.pods.values()):
                step(pod)

    @rule(n=picks)
    def unready(self, n: int) -> None:
        if (pod := self.pick(n)) and pod.ready:
            self.sim.pods[pod.uid] = replace(pod, ready=False, ready_changed=self.sim.now)

    @rule(n=picks)
    def crash(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.crash(pod)

    @rule(n=picks)
    def evict(self, n: int) -> None:
        if (pod := self.pick(n)) and not pod.ended:
            self.sim.crash(pod)
            pod = self.sim.pods[pod.uid]
            self.sim.pods[pod.uid] = replace(pod, phase="Failed", running=False, ready=False)

    @rule(n=picks)
    def sigterm(self, n: int) -> None:
        if pod := self.pick(n):
            self.sim.sigterm(pod)

    @rule(n=picks, taint=st.sampled_from([UNSCHEDULABLE, SPOT, None]))
    def node_going(self, n: int, taint: Taint | None) -> None:
        name = f"n{n % 3 + 1}"
        self.sim.nodes[name] = replace(self.sim.nodes[name], taints=(taint,) if taint else ())

    @rule(n=picks, reachable=st.booleans())
    def node_cut_off(self, n: int, reachable: bool) -> None:
        name = f"n{n % 3 + 1}"
        self.sim.nodes[name] = replace(self.sim.nodes[name], reachable=reachable, changed=self.sim.now)

    # -- work

    @rule(n=picks)
    def claim(self, n: int) -> None:
        uids = sorted({w.pod_uid for w in self.sim.workers.values()})
        if uids:
            self.sim.claim(uids[n % len(uids)])

    @rule()
    def everybody_claims(self) -> None:
        for uid in {w.pod_uid for w in self.sim.workers.values()}:
            self.sim.claim(uid)

    @rule(n=picks)
    def finish(self, n: int) -> None:
        busy = sorted(uid for uid, held in self.sim.leases.items() if held)
        if busy:
            self.sim.leases[busy[n % len(busy)]].pop()

    @rule()
    def beat(self) -> None:
        self.sim.beat()

    @rule()
    def sweep(self) -> None:
        self.sim.sweep()

    @rule(answers=st.booleans())
    def store(self, answers: bool) -> None:
        self.sim.reachable = answers

    @rule(seconds=st.sampled_from([1, 16, 61, 400]))
    def wait(self, seconds: int) -> None:
        self.sim.wait(seconds)

    # -- the operator

    @rule()
    def round(self) -> None:
        self.sim.act(self.sim.plan())

    @rule()
    def rounds_until_quiet(self) -> None:
        for _ in range(12):
            if not self.sim.act(self.sim.plan()):
                return
        raise AssertionError("the operator does not come to rest")

    @rule()
    def a_quiet_minute(self) -> None:
        """Most of what follows needs pods that work."""
        self.all_come_up()
        self.sim.wait(30)
        self.beat()
        self.rounds_until_quiet()
        self.all_come_up()
        self.everybody_claims()
        self.rounds_until_quiet()

    @rule(n=st.integers(0, 6))
    def round_that_dies(self, n: int) -> None:
        self.sim.act(self.sim.plan(), n)

    @rule(n=picks)
    def round_on_an_old_picture_of_the_pods(self, n: int) -> None:
        """What happens between looking and acting."""
        planned = self.sim.plan()
        if (pod := self.pick(n)) and pod.uid in self.sim.pods:
            self.sim.claim(pod.uid)
        self.sim.act(planned)

    # -- what must always hold

    @invariant()
    def the_plan_is_a_fixed_point(self) -> None:
        """Made again on its own outcome, it decides nothing new."""
        planned = self.sim.plan()
        if any(isinstance(action, FINDINGS) for action in planned.actions):
            return  # these bring new facts to light, and new facts may change the decision
        copied = copy.deepcopy(self.sim)
        copied.act(planned)
        again = [action for action in copied.plan().actions if isinstance(action, DECISIONS)]
        assert not again, (planned.actions, again)

    def teardown(self) -> None:
        """Left in peace, everything comes to rest at what is desired."""
        sim = self.sim
        sim.reachable = True
        sim.nodes = {name: Node(name) for name in sim.nodes}
        if sim.spec_fields["image"] == BAD:
            sim.spec_fields["image"] = "v2"
        sim.spec_fields["admission"] = "Open"
        sim.spec_fields["rollout"] = {**sim.spec_fields.get("rollout", {}), "paused": False, "partition": 0}
        for pod in list(sim.pods.values()):
            sim.pods[pod.uid] = replace(pod, cause=None if pod.cause == Cause.ADMIN else pod.cause)
        quiet = 0
        for _ in range(200):
            moved = settle(sim)
            quiet = 0 if sim.act(sim.plan()) or moved else quiet + 1
            if quiet == 4:  # two minutes in which nothing but time passed
                break
        spec = sim.spec()
        active = sim.active()
        assert len(active) == spec.desired, [str(p.name) for p in sim.pods.values()]
        assert len(sim.pods) == spec.desired
        if not any(r.failed for r in sim.revisions.values()):
            assert len({pod.revision for pod in active}) <= 1
            assert all(sim.revisions[pod.revision].content == spec.content for pod in active)


def settle(sim: Simulation) -> bool:
    """Half a minute in a healthy cluster: everything starts, renews and finishes."""
    before = copy.deepcopy(sim.pods)
    sim.wait(30)
    for step in (sim.sigterm, sim.start, sim.register, sim.become_ready):
        for pod in list(sim.pods.values()):
            step(pod)
    sim.beat()
    for uid in list(sim.leases):
        worker = sim.living(uid)
        sim.leases[uid] = [x for x in sim.leases[uid] if worker is None or x.worker_id != worker.id]
    sim.sweep()
    return before != sim.pods


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
