"""What people read: which pod is waited for, since when and until when; and when nothing is worth a write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from slackwater_operator.conditions import Problem
from slackwater_operator.names import Cause, Reason
from slackwater_operator.seen import Budget, Node
from slackwater_operator.status import MAX_DRAINING, merge, settled_part, status
from tests.unit.situations import (
    NOW,
    OLD,
    ROLLING,
    Situation,
    World,
    broken,
    pool,
    seconds,
    serving,
)


def told(world: World, replicas: int = 2, problems: tuple[Problem, ...] = (), **spec: Any) -> dict[str, Any]:
    return status(pool(replicas, **spec), world.seen(), NOW, problems)


def condition(found: dict[str, Any], kind: str) -> tuple[str, str]:
    one = next(c for c in found["conditions"] if c["type"] == kind)
    return one["status"], one["reason"]


def message(found: dict[str, Any], kind: str) -> str:
    return str(next(c["message"] for c in found["conditions"] if c["type"] == kind))


def test_the_counts_keep_ready_draining_terminating_and_lost_apart() -> None:
    lost = serving("l", node="dead").but(ready=False)
    assert lost.worker
    lost = replace(lost, worker=replace(lost.worker, seen_at=NOW - seconds(61)))
    pods = (
        serving("a"),
        serving("b").busy(2),
        serving("c", OLD).cordoned().busy(),
        serving("d", OLD).cordoned(condemned=True).but(deleting=NOW),
        lost,
    )
    found = told(World(pods, nodes={"n1": Node("n1"), "dead": Node("dead", reachable=False)}))
    counts = {k: v for k, v in found.items() if k.endswith("Replicas") or k in ("replicas", "activeLeases")}
    assert counts == {
        "replicas": 2,
        "readyReplicas": 2,
        "idleReplicas": 1,
        "busyReplicas": 2,
        "drainingReplicas": 1,
        "terminatingReplicas": 1,
        "lostReplicas": 1,
        "updatedReplicas": 2,
        "unavailableReplicas": 0,
        "activeLeases": 3,
    }


def test_a_pod_that_is_not_ready_or_not_registered_does_not_serve() -> None:
    unready = serving("b").but(ready=False)
    assert condition(told(World((serving("a"), unready))), "Ready") == ("False", "TooFewReady")
    stranger = replace(serving("b"), worker=None)
    assert condition(told(World((serving("a"), stranger))), "Ready") == ("False", "TooFewReady")


def test_while_the_store_gives_no_answer_nothing_is_called_lost() -> None:
    dead = {"n1": Node("n1", reachable=False)}
    found = told(World((serving("a"), serving("b")), nodes=dead, reachable=False))
    assert (found["replicas"], found["lostReplicas"]) == (2, 0)
    assert condition(found, "StoreReachable") == ("False", "Unreachable")
    assert condition(found, "Ready") == ("False", "Unreachable")


def test_it_says_which_pod_is_waited_for_since_when_and_until_when() -> None:
    found = told(World((serving("a"), serving("b"), serving("d", OLD).cordoned().busy(ends=seconds(100))), ROLLING))
    assert found["draining"] == [
        {
            "pod": "d",
            "uid": "d",
            "revision": OLD,
            "cause": "Rollout",
            "since": "2026-12-01T11:59:00Z",
            "deadline": "2026-12-01T13:00:00Z",
            "leases": 1,
            "expectedCompletionTime": "2026-12-01T12:02:00Z",
        }
    ]
    assert condition(found, "Progressing") == ("True", "WaitingForDrain")
    assert condition(found, "Draining") == ("True", "PodsDraining")
    assert message(found, "Draining") == "d (Rollout) with 1 leases, since 11:59Z until 13:00Z"
    assert condition(found, "Reconciling") == ("True", "WaitingForDrain")


def test_the_list_is_bounded_and_the_count_is_true() -> None:
    pods = tuple(serving(f"d{n}").cordoned().busy() for n in range(30))
    found = told(World(pods))
    assert (len(found["draining"]), found["drainingReplicas"]) == (MAX_DRAINING, 30)


def test_at_rest_it_is_complete_ready_and_not_reconciling() -> None:
    found = told(World((serving("a"), serving("b"))))
    assert condition(found, "Progressing") == ("True", "Complete")
    assert condition(found, "Ready") == ("True", "AllReady")
    assert condition(found, "Reconciling") == ("False", "Settled")
    assert condition(found, "Stalled") == ("False", "NotStalled")
    assert found["observedGeneration"] == 1


def test_a_bad_image_is_named_while_the_old_pods_serve() -> None:
    pods = (serving("a", OLD), serving("b", OLD), broken("x"))
    found = told(World(pods, ROLLING))
    assert condition(found, "Progressing") == ("False", "ImagePull")
    assert "x: ImagePullBackOff" in message(found, "Progressing")
    assert condition(found, "Ready") == ("True", "AllReady")


def test_each_kind_of_trouble_has_its_reason() -> None:
    reasons = {
        "CrashLoopBackOff": "CrashLoop",
        "Unschedulable": "Unschedulable",
        "CreateContainerConfigError": "ConfigError",
    }
    for word, reason in reasons.items():
        found = told(World((serving("a"), broken("x", reason=word))))
        assert condition(found, "Progressing") == ("False", reason)


def test_a_rollout_that_missed_its_deadline_says_so() -> None:
    late = broken("x").but(created=NOW - seconds(601))
    found = told(World((serving("a", OLD), serving("b", OLD), late), ROLLING))
    assert condition(found, "RolloutFailed") == ("True", "ProgressDeadlineExceeded")
    assert condition(found, "Progressing") == ("False", "ProgressDeadlineExceeded")


def test_paused_and_canary_are_no_work_in_progress() -> None:
    pods = (serving("a", OLD), serving("b"))
    for spec, reason in (({"paused": True}, "Paused"), ({"partition": 1}, "Canary")):
        found = told(World(pods, ROLLING), rollout=spec)
        assert condition(found, "Progressing")[1] == reason
        assert condition(found, "Reconciling") == ("False", "Settled")


def test_a_second_budget_is_named() -> None:
    ours = Budget(
        "p-protected", ours=True, selects=(("slackwater.dev/pool", "p"), ("slackwater.dev/protected", "true"))
    )
    second = Budget("theirs", ours=False, selects=(("slackwater.dev/pool", "p"),))
    other = Budget("other", ours=False, selects=(("app", "web"),))
    pods = (serving("a"), serving("b"))
    assert condition(told(World(pods, budgets=(ours, second))), "EvictionBlocked") == ("True", "SecondBudget")
    assert condition(told(World(pods, budgets=(ours, other))), "EvictionBlocked") == ("False", "NotBlocked")


def test_a_refusal_stalls_and_a_busy_api_server_does_not() -> None:
    world = World((serving("a"),))
    quota = Problem(Reason.QUOTA_EXCEEDED, "exceeded quota: pods")
    assert condition(told(world, problems=(quota,)), "Stalled") == ("True", "QuotaExceeded")
    busy = Problem(Reason.API_UNAVAILABLE, "429")
    assert condition(told(world, problems=(busy,)), "Stalled") == ("False", "NotStalled")


def test_a_stuck_pod_is_shown_with_its_finalizer() -> None:
    stuck = serving("d").cordoned(Cause.SCALE_DOWN).busy().but(deleting=NOW, finalizers=("foreign/x",))
    assert "held by finalizers foreign/x" in message(told(World((serving("a"), serving("b"), stuck))), "Draining")
    over = replace(stuck, leases=()).but(running=False)
    found = told(World((serving("a"), serving("b"), over)))
    assert condition(found, "Draining") == ("True", "HeldByFinalizers")
    assert "held by finalizers foreign/x" in message(found, "Draining")
    assert condition(found, "Progressing") == ("True", "Complete")


def test_a_time_of_transition_moves_only_with_the_status() -> None:
    first = merge({}, told(World((serving("a"), serving("b")))), NOW)
    later = merge(first, told(World((serving("a"), serving("b")))), NOW + timedelta(minutes=5))
    assert later == first
    worse = merge(first, told(World((serving("a"),))), NOW + timedelta(minutes=5))
    times = {c["type"]: c["lastTransitionTime"] for c in worse["conditions"]}
    assert times["Ready"] == "2026-12-01T12:05:00Z"
    assert times["StoreReachable"] == "2026-12-01T12:00:00Z"


def drifts(one: Situation, other: Situation) -> bool:
    a, b = told(World((serving("z"), one))), told(World((serving("z"), other)))
    return a != b and settled_part(a) == settled_part(b)


def test_leases_and_estimates_are_only_drift() -> None:
    assert drifts(serving("a").busy(1), serving("a").busy(2))
    assert drifts(serving("a"), serving("a").busy())
    drain = serving("d").cordoned()
    assert drifts(drain.busy(2, ends=seconds(60)), drain.busy(1, ends=seconds(600)))
    assert not drifts(serving("a"), serving("a").but(ready=False))
    assert not drifts(serving("a"), serving("a").cordoned().busy())
