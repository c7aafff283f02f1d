"""Situations → decisions: replacing, shrinking, rolling. Each name is the sentence that the plan must make true."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from slackwater_operator.drain import UNSCHEDULABLE
from slackwater_operator.names import Cause
from slackwater_operator.seen import Node
from tests.unit.situations import (
    LONG_AGO,
    NOW,
    OLD,
    ROLLING,
    Situation,
    World,
    broken,
    ended,
    pending,
    pool,
    said,
    seconds,
    serving,
    silent,
)


@dataclass(frozen=True)
class Case:
    name: str
    replicas: int
    pods: tuple[Situation, ...]
    wants: list[str]
    spec: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    deleting: bool = False


def old(n: int, busy: bool = False) -> tuple[Situation, ...]:
    return tuple(serving(f"o{i}", OLD).busy() if busy else serving(f"o{i}", OLD) for i in range(n))


def new(n: int) -> tuple[Situation, ...]:
    return tuple(serving(f"s{i}") for i in range(n))


ROLLOUT = {"revisions": ROLLING}

CASES = [
    Case("a pool at rest is left alone", 2, new(2), []),
    Case("missing pods are made", 3, new(1), ["create new", "create new"]),
    Case("a pod that has ended is replaced and is on its way out", 1, (ended("e"),), ["drain e Gone", "create new"]),
    Case("a surplus drains, idle pods first", 1, (serving("b").busy(), serving("a")), ["drain a ScaleDown"]),
    Case(
        "of busy pods the one that is free soonest goes",
        1,
        (serving("a").busy(ends=seconds(300)), serving("b").busy(ends=seconds(20))),
        ["drain b ScaleDown"],
    ),
    Case(
        "of equally busy pods the youngest work goes",
        1,
        (serving("a").busy(since=seconds(300)), serving("b").busy(since=seconds(30))),
        ["drain b ScaleDown"],
    ),
    Case(
        "a pod that never started goes before an idle one",
        1,
        (serving("a"), pending("b")),
        ["drain b ScaleDown"],
        {"rollout": {"maxUnavailable": 1}},
    ),
    Case(
        "a broken pod goes before an idle one",
        1,
        (serving("a"), broken("b")),
        ["drain b ScaleDown"],
        {"rollout": {"maxUnavailable": 1}},
    ),
    Case(
        "unknown is busy: a silent container goes last",
        1,
        (silent("a"), serving("b").busy(ends=seconds(20))),
        ["drain b ScaleDown"],
        {"rollout": {"maxUnavailable": 1}},
    ),
    Case(
        "what serves stays, so a silent container goes if there must be one",
        1,
        (silent("a"), serving("b").busy()),
        ["drain a ScaleDown"],
    ),
    Case(
        "shrinking never goes below what must serve",
        2,
        (serving("a"), serving("b"), silent("c"), silent("d")),
        ["drain c ScaleDown", "drain d ScaleDown"],
    ),
    Case("scaled to zero, all drain", 0, (*new(1), serving("b").busy()), ["drain s0 ScaleDown", "drain b ScaleDown"]),
    Case(
        "HoldAndDrain drains all and replaces nothing",
        2,
        new(2),
        ["drain s0 ScaleDown", "drain s1 ScaleDown"],
        {"admission": "HoldAndDrain"},
    ),
    Case("Hold drains nobody", 2, new(2), [], {"admission": "Hold"}),
    Case("Closed drains nobody", 2, new(2), [], {"admission": "Closed"}),
    Case(
        "scaling up again keeps a pod that drains for ScaleDown",
        2,
        (serving("a"), serving("b").cordoned(Cause.SCALE_DOWN).busy()),
        ["calloff b"],
    ),
    Case(
        "a drain that its own worker began is not called off",
        2,
        (serving("a"), serving("b").cordoned(Cause.TERMINATED, origin="worker", annotated=False).busy()),
        ["create new"],
    ),
    Case(
        "nor one that we began and its worker made final",
        2,
        (serving("a"), serving("b").cordoned(Cause.SCALE_DOWN, origin="worker").busy()),
        ["create new"],
    ),
    Case(
        "a condemned pod is not called off",
        2,
        (serving("a"), serving("b").cordoned(Cause.SCALE_DOWN, condemned=True)),
        ["delete b", "create new"],
    ),
    Case(
        "a pod of another revision is not called off",
        2,
        (serving("a"), serving("b", OLD).cordoned(Cause.ROLLOUT).busy()),
        ["create new"],
    ),
    Case("a rollout begins with the surge", 3, old(3), ["create new"], {}, ROLLOUT),
    Case(
        "maxUnavailable drains at once and the surge is made",
        3,
        old(3),
        ["create new", "drain o0 Rollout", "create new"],
        {"rollout": {"maxUnavailable": 1}},
        ROLLOUT,
    ),
    Case(
        "without surge an old pod goes first",
        3,
        old(3),
        ["drain o0 Rollout", "create new"],
        {"rollout": {"maxSurge": 0, "maxUnavailable": 1}},
        ROLLOUT,
    ),
    Case("while the new pod is not ready no old one goes", 3, (*old(3), pending("s0")), [], {}, ROLLOUT),
    Case(
        "a new pod that serves lets an old one go",
        3,
        (*old(3), *new(1)),
        ["drain o0 Rollout", "create new"],
        {},
        ROLLOUT,
    ),
    Case(
        "minReadySeconds: a new pod counts only when it has been ready so long",
        3,
        (*old(3), serving("s0").but(ready_changed=None)),
        [],
        {"rollout": {"minReadySeconds": 30}},
        ROLLOUT,
    ),
    Case(
        "a busy old pod drains, and the next new one is made beside it",
        2,
        (*old(2, busy=True), *new(1)),
        ["drain o0 Rollout", "create new"],
        {},
        ROLLOUT,
    ),
    Case(
        "maxDraining bounds the pods that drain for a rollout",
        2,
        (serving("d", OLD).cordoned().busy(), *old(1, busy=True), *new(2)),
        [],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case(
        "drains of other causes use up nothing of maxDraining",
        2,
        (serving("d", OLD).cordoned(Cause.SCALE_DOWN).busy(), *old(1), *new(2)),
        ["drain o0 Rollout"],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case(
        "while drains hold the rollout up no more than the surge is made",
        3,
        (serving("d", OLD).cordoned().busy(), *old(2, busy=True), *new(2)),
        [],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case(
        "a terminating pod still counts for maxDraining while its container runs",
        2,
        (serving("d", OLD).cordoned(condemned=True).but(deleting=NOW), *old(1), *new(2)),
        [],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case(
        "a pod stuck behind a foreign finalizer holds up nobody",
        2,
        (
            serving("d", OLD).cordoned(condemned=True).but(deleting=NOW, running=False, finalizers=("foreign",)),
            *old(1),
            *new(2),
        ),
        ["drain o0 Rollout"],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case("paused, nothing rolls", 3, (*old(3), *new(1)), [], {"rollout": {"paused": True}}, ROLLOUT),
    Case(
        "paused, a lost pod is still replaced, by its old revision",
        3,
        old(2),
        ["create old"],
        {"rollout": {"paused": True}},
        ROLLOUT,
    ),
    Case(
        "a partition keeps so many on the old revision",
        3,
        (*old(2), *new(1)),
        [],
        {"rollout": {"partition": 2}},
        ROLLOUT,
    ),
    Case(
        "a canary's lost old pod is made again as the old one",
        3,
        (*old(1), *new(1)),
        ["create old"],
        {"rollout": {"partition": 2}},
        ROLLOUT,
    ),
    Case(
        "while new pods are unproven a lost old pod is replaced by the proven revision",
        4,
        (*old(2), pending("s0")),
        ["create old", "create old"],
        {},
        ROLLOUT,
    ),
    Case(
        "what the proven revision loses in a stuck rollout is made again, though there are as many pods as replicas",
        3,
        (*old(2), broken("s0")),
        ["create old"],
        {},
        ROLLOUT,
    ),
    Case(
        "what stands in for a lost pod is not rolled before the new revision is proven",
        3,
        (*old(2), pending("o2", OLD), broken("s0")),
        [],
        {},
        ROLLOUT,
    ),
    Case(
        "a revert drains the broken pods of the revision in between",
        3,
        (*new(3), broken("x0", "dead")),
        ["drain x0 Broken"],
    ),
    Case(
        "broken pods of a dead revision go though maxDraining is used up",
        2,
        (serving("d", OLD).cordoned().busy(), *new(2), broken("x0", "dead")),
        ["drain x0 Broken"],
        {"drain": {"maxDraining": 1}},
    ),
    Case(
        "a newer spec overtakes: pods that never started go, the proven ones wait for the surge",
        2,
        (*old(2), pending("x0", "dead")),
        ["drain x0 Broken", "create new"],
        {},
        ROLLOUT,
    ),
    Case(
        "reverting calls off the rollout's drains instead of making pods",
        3,
        (*new(2), serving("s2").cordoned(Cause.ROLLOUT).busy(), serving("x0", "dead")),
        ["calloff s2", "drain x0 Rollout"],
    ),
    Case(
        "scaling down in a rollout takes old idle pods before new ones",
        2,
        (*old(2), *new(2)),
        ["drain o0 ScaleDown", "drain o1 Rollout"],
        {},
        ROLLOUT,
    ),
    Case("scaled up from zero with a new spec, only new pods are made", 2, (), ["create new"] * 2, {}, ROLLOUT),
    Case(
        "old pods that have been unready for long go within maxDraining",
        3,
        tuple(silent(f"o{i}", OLD).but(ready_changed=LONG_AGO) for i in range(3)),
        ["drain o0 Rollout", "create new", "create new"],
        {"drain": {"maxDraining": 1}},
        ROLLOUT,
    ),
    Case(
        "shrinking takes no pod that a partition keeps, though it is idle",
        3,
        (*old(2), serving("s0").busy(), serving("s1").busy()),
        ["drain s0 ScaleDown"],
        {"rollout": {"partition": 2}},
        ROLLOUT,
    ),
    Case(
        "pods of a dead revision roll before those of the proven one",
        2,
        (serving("o0", OLD), serving("x0", "dead"), *new(1)),
        ["drain x0 Rollout", "create new"],
        {},
        ROLLOUT,
    ),
    Case(
        "a broken pod of the proven revision is rolled like any other",
        2,
        (serving("o0", OLD), broken("o1", OLD)),
        ["drain o1 Rollout", "create new", "create old"],
        {},
        ROLLOUT,
    ),
    Case(
        "a drain is not called off on a node that goes",
        2,
        (serving("a", node="n2"), serving("b").cordoned(Cause.SCALE_DOWN).busy()),
        ["create new"],
        {},
        {"nodes": {"n1": Node("n1", taints=(UNSCHEDULABLE,)), "n2": Node("n2")}},
    ),
    Case(
        "a drain is not called off on a node that is cut off",
        2,
        (serving("a", node="n2"), serving("b").cordoned(Cause.SCALE_DOWN).busy()),
        ["create new"],
        {},
        {"nodes": {"n1": Node("n1", reachable=False), "n2": Node("n2")}},
    ),
    Case(
        "a broken pod's drain is not called off",
        2,
        (serving("a"), broken("b").cordoned(Cause.SCALE_DOWN)),
        ["create new", "condemn b"],
    ),
    Case(
        "a drain that its worker made final is not called off",
        2,
        (serving("a"), serving("b").cordoned(Cause.SCALE_DOWN, origin="worker").busy()),
        ["create new"],
    ),
    Case("a pool that is being deleted makes and drains nothing", 3, new(1), [], deleting=True),
    Case(
        "a brief unreadiness of old pods is no licence to drain them",
        2,
        (serving("o0", OLD).but(ready=False, ready_changed=NOW - seconds(5)), serving("o1", OLD)),
        ["create new"],
        {},
        ROLLOUT,
    ),
    Case(
        "percentages round surge up and unavailable down",
        3,
        old(3),
        ["create new"],
        {"rollout": {"maxSurge": "10%", "maxUnavailable": "10%"}},
        ROLLOUT,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_supply(case: Case) -> None:
    spec = pool(case.replicas, **case.spec)
    if case.deleting:
        spec = replace(spec, deleting=True)
    assert said(World(case.pods, **case.world).plan(spec)) == case.wants
