"""Why a pod is still here: each answer, and what its sentence has to name."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater_operator.cli.why import _CAUSES, Because, why
from slackwater_operator.names import Cause
from tests.unit.plugin_cluster import NEW, NOW, OLD, at, condition, draining, going, pod, pool, waiting

BLIND = condition("StoreReachable", "False", "Unreachable", "connection refused")
FAILED = condition("RolloutFailed", "True", "ProgressDeadlineExceeded", "not ready within 600 s: reports-x-0")
OLD_POD = pod(f"reports-{OLD}-1", OLD)
ROLLOUT = {"paused": False, "maxSurge": 1, "maxUnavailable": 0, "progressDeadline": "10m"}


def gone(minutes: float, *finalizers: str, running: bool = True) -> dict[str, Any]:
    body = pod(f"reports-{OLD}-0", OLD, deletionTimestamp=at(minutes), finalizers=list(finalizers))
    if not running:
        body["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    return body


def over(phase: str, reason: str, message: str) -> dict[str, Any]:
    body = pod(f"reports-{NEW}-0")
    body["status"] |= {"phase": phase, "reason": reason, "message": message}
    return body


def with_going(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pool(status={"draining": list(entries)}, **more)


NAME = f"reports-{OLD}-0"
CASES = [
    (
        draining(),
        pool(),
        Because.WORKING,
        ["another revision", "09:40Z", "2 leases", "11:10Z", "70m from now", "10:12Z"],
    ),
    (draining(cause="Admin"), with_going(going(NAME, cause="Admin")), Because.WORKING, ["kubectl slackwater drain"]),
    (
        draining(),
        with_going(going(NAME, deadline=None, expectedCompletionTime=None, leases=1)),
        Because.WORKING,
        ["1 lease,", "without a deadline", "Wait"],
    ),
    (draining(), with_going(going(NAME, deadline=at(-5))), Because.OVERDUE, ["09:55Z", "5m ago", "takes away"]),
    (draining(), with_going(going(NAME, deadline=at(-0.5))), Because.WORKING, ["(now) what is left is handed back"]),
    (draining(cause="ScaleDown"), pool(), Because.WORKING, ["was scaled down"]),
    (draining(cause="ScaleDown"), pool(admission="HoldAndDrain"), Because.WORKING, ["admission is HoldAndDrain"]),
    (draining(), with_going(going(NAME, leases=0)), Because.NO_LEASE, ["condemns", "09:40Z"]),
    (draining(), with_going(), Because.NOT_CORDONED, ["a round", "operator runs"]),
    (
        draining(),
        with_going(*(going(f"reports-other-{n}") for n in range(20))),
        Because.NOT_CORDONED,
        ["first 20 pods"],
    ),
    (draining(), pool(conditions=(BLIND,)), Because.STORE_UNREACHABLE, ["connection refused", "nothing is deleted"]),
    # The cordon alone, as when a worker cordoned itself.
    (pod(NAME, OLD), with_going(going(NAME, cause="Stubborn")), Because.WORKING, ["did not stop"]),
    (draining(cause="NewInVersion9"), with_going(), Because.NOT_CORDONED, ["because of NewInVersion9"]),
    (gone(30), pool(), Because.STOPPING, ["10:30Z", "2 leases"]),
    (gone(30, "example.com/hold"), pool(), Because.STOPPING, ["example.com/hold"]),
    (gone(30, "example.com/hold", running=False), pool(), Because.FINALIZERS, ["example.com/hold", "sets none"]),
    (gone(-10), pool(), Because.NOT_CONFIRMED, ["node-1", "10m ago", "cut off"]),
    (gone(30), None, Because.STOPPING, ["10:30Z"]),
    (pod(NAME), None, Because.NO_POOL, ["no longer exists"]),
    (over("Failed", "Evicted", "low on\nmemory"), pool(), Because.ENDED, ["Failed: low on memory"]),
    (over("Failed", "Evicted", ""), pool(conditions=(BLIND,)), Because.ENDED, ["nothing is deleted"]),
    (pod("reports-a"), pool(), Because.WANTED, [f"wanted revision {NEW}", "2 replicas"]),
    (pod("reports-a"), pool(replicas=1), Because.WANTED, ["wants 1 replica and has 2 at present"]),
    (pod("reports-a", labels={"slackwater.dev/protected": "true"}), pool(), Because.WANTED, ["at work"]),
    (pod("reports-a"), pool(status={"observedGeneration": 3}), Because.NOT_SEEN, ["latest spec"]),
    (pod("reports-a"), pool(status={"observedGeneration": None}), Because.NOT_SEEN, ["operator runs"]),
    (
        waiting(pod("reports-a"), "ImagePullBackOff", "no such image"),
        pool(),
        Because.IN_TROUBLE,
        ["ImagePullBackOff", "no such image", "10m"],
    ),
    (OLD_POD, pool(), Because.WAITS_ITS_TURN, ["maxSurge (1)", "maxDraining (3)", "RollingOut"]),
    (OLD_POD, pool(rollout={**ROLLOUT, "paused": True}), Because.PAUSED, ["kubectl slackwater resume"]),
    (OLD_POD, pool(conditions=(BLIND,)), Because.STORE_UNREACHABLE, ["no pod is drained"]),
    (OLD_POD, pool(conditions=(FAILED,)), Because.ROLLOUT_FAILED, ["600 s", "kubectl slackwater rollback"]),
    (OLD_POD, pool(rollout={**ROLLOUT, "partition": 1}), Because.PARTITION, ["keeps 1 pod "]),
    (
        OLD_POD,
        pool(rollout={**ROLLOUT, "partition": 1}, status={"updatedReplicas": 0}),
        Because.WAITS_ITS_TURN,
        ["turn"],
    ),
]


@pytest.mark.parametrize(("body", "owner", "because", "words"), CASES)
def test_the_answer_names_what_is_waited_for(
    body: dict[str, Any], owner: dict[str, Any] | None, because: Because, words: list[str]
) -> None:
    answer = why(body, owner, NOW)
    assert answer.because is because, answer.text
    assert [word for word in words if word not in answer.text] == [], answer.text
    assert body["metadata"]["name"] in answer.text
    assert "\n" not in answer.text


def test_every_answer_is_in_the_table() -> None:
    assert {because for _, _, because, _ in CASES} == set(Because)


def test_every_cause_has_words() -> None:
    assert set(_CAUSES) == set(Cause)
