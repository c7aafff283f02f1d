"""JSON as the API server tells it → values: what a missing field means."""

from __future__ import annotations

from typing import Any

from slackwater_operator import reading
from slackwater_operator.cache import Cache
from slackwater_operator.names import AUTOSCALER_KEEP
from slackwater_operator.seen import Taint


def body(version: int = 1, uid: str = "u", *, status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    base = {"name": "p", "uid": uid, "creationTimestamp": "2026-12-01T00:00:00Z", "resourceVersion": str(version)}
    owner = [{"kind": "WorkerPool", "uid": "pool", "controller": True}]
    return {"metadata": {**base, "ownerReferences": owner, **meta}, "spec": {}, "status": status or {}}


def container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "worker", "restartCount": 0, **state}]}


def test_a_pod_of_which_nothing_is_known_is_neither_running_nor_ready() -> None:
    pod = reading.pod(body())
    assert (pod.running, pod.ready, pod.phase, pod.never_started) == (False, False, "Pending", True)


def test_only_the_container_named_worker_counts() -> None:
    sidecar = {"containerStatuses": [{"name": "proxy", "state": {"running": {}}, "restartCount": 3}]}
    pod = reading.pod(body(status=sidecar))
    assert (pod.running, pod.restarts) == (False, 0)


def test_the_witness_is_the_first_line_of_the_termination_message() -> None:
    ended = {"terminated": {"reason": "Error", "exitCode": 137, "message": "w-1\nsomething else"}}
    pod = reading.pod(body(status=container(state={"running": {}}, lastState=ended, restartCount=1)))
    assert [(e.worker_id, e.reason, e.code) for e in pod.exits] == [("w-1", "Error", 137)]
    pod = reading.pod(body(status=container(state=ended)))
    assert [e.worker_id for e in pod.exits] == ["w-1"]


def test_a_container_without_message_names_nobody() -> None:
    pod = reading.pod(body(status=container(state={"terminated": {"exitCode": 1}})))
    assert [e.worker_id for e in pod.exits] == [""]


def test_starting_is_no_trouble_and_the_rest_is() -> None:
    def reason(**state: Any) -> str | None:
        found = reading.pod(body(status=container(**state))).trouble
        return found.reason if found else None

    assert reason(state={"waiting": {"reason": "ContainerCreating"}}) is None
    assert reason(state={"waiting": {"reason": "ErrImagePull"}}) == "ErrImagePull"
    assert reason(state={"running": {}}) is None
    crashed = {"terminated": {"reason": "Error", "exitCode": 1}}
    assert reason(state={"running": {}}, lastState=crashed, restartCount=1) is None
    assert reason(state={"running": {}}, lastState=crashed, restartCount=2) == "Error"
    assert reason(state={"running": {}}, lastState=crashed, restartCount=2, ready=True) is None


def test_a_pod_that_does_not_fit_anywhere_says_why() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    trouble = reading.pod(body(status={"phase": "Pending", "conditions": [condition]})).trouble
    assert trouble is not None
    assert (trouble.reason, trouble.message) == ("Unschedulable", "0/3 nodes")


def test_the_autoscalers_marks_count_only_together() -> None:
    assert reading.pod(body(annotations=dict(AUTOSCALER_KEEP))).kept
    one = dict(list(AUTOSCALER_KEEP.items())[:1])
    assert not reading.pod(body(annotations=one)).kept


def test_a_label_alone_makes_a_pod_nobodys() -> None:
    stray = body(labels={"slackwater.dev/pool": "p"}, ownerReferences=[])
    assert reading.owner_uid(stray) is None
    cache = Cache()
    assert cache.pods.put(stray) is None
    assert len(cache.pods) == 0


def node(**more: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-12-01T00:00:00Z"}
    return {"metadata": {"name": "n", "uid": "n"}, "spec": more, "status": {"conditions": [ready]}}


def test_an_unschedulable_node_reads_as_its_taint_once() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    for spec in ({"unschedulable": True}, {"unschedulable": True, "taints": [taint]}, {"taints": [taint]}):
        assert reading.node(node(**spec)).taints == (Taint(taint["key"], "NoSchedule"),)
    assert reading.node(node()).reachable


def test_a_node_that_says_nothing_is_not_reachable() -> None:
    assert not reading.node({"metadata": {"name": "n", "uid": "n"}}).reachable


def test_the_cache_never_goes_back_in_time() -> None:
    cache = Cache()
    assert cache.pods.put(body(5)) == "pool"
    assert cache.pods.put(body(4, annotations={"slackwater.dev/drain-cause": "Rollout"})) is None
    assert cache.pods.of("pool")[0].cause is None


def test_what_changes_nothing_that_matters_wakes_nobody() -> None:
    cache = Cache()
    cache.pods.put(body(1))
    assert cache.pods.put(body(2)) is None
    assert cache.pods.put(body(3, labels={"slackwater.dev/protected": "true"})) == "pool"


def test_what_was_seen_deleted_stays_deleted() -> None:
    cache = Cache()
    cache.pods.put(body(1))
    assert cache.pods.remove("u") == "pool"
    assert cache.pods.put(body(9)) is None
    assert cache.pods.of("pool") == []


def test_a_list_removes_what_it_does_not_have_but_nothing_newer_than_itself() -> None:
    cache = Cache()
    cache.pods.put(body(3, "old"))
    cache.pods.put(body(8, "made-after-the-list"))
    assert cache.pods.prune({"other"}, 5) == ["pool"]
    assert [p.uid for p in cache.pods.of("pool")] == ["made-after-the-list"]


def test_a_pools_own_status_does_not_wake_it() -> None:
    cache = Cache()
    pool = body(1, "pool")
    assert cache.pools.put(pool) == "pool"
    pool = {**body(2, "pool"), "status": {"replicas": 3}}
    assert cache.pools.put(pool) is None
