"""Rolling updates over busy pods: C01, C05, C07, C09 of the field cases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tests.kit.pools import V2, PoolUnderTest
from tests.kit.waiting import until

MakePool = Callable[..., PoolUnderTest]
NO_SURGE = {"maxSurge": 0, "maxUnavailable": 1}


def test_c01_a_new_image_interrupts_no_running_task(make_pool: MakePool) -> None:
    pool = make_pool(replicas=3, rollout=NO_SURGE)
    for _ in range(3):
        pool.render(18)
    pool.until_each_busy(3)
    old = {p["metadata"]["uid"] for p in pool.pods()}
    with pool.watched() as record:
        pool.set_image(V2)
        until("a pod drains", 20, lambda: pool.status.get("draining"))
        for _ in range(3):
            pool.render(1)
        assert set(pool.wait_ended().values()) == {"done"}
        pool.until_settled(3)
    assert record.deleted_busy == []
    pool.assert_each_ran_once()
    assert {c for uid in old for c in record.exit_codes[uid]} == {0}
    assert pool.condition("Progressing")["reason"] == "Complete"
    assert not old & {p["metadata"]["uid"] for p in pool.pods()}


def test_while_a_rollout_waits_the_status_says_for_whom_since_when_and_until_when(make_pool: MakePool) -> None:
    pool = make_pool(replicas=1)
    task = pool.render(20)
    pool.until_each_busy(1)
    name = pool.pods()[0]["metadata"]["name"]
    pool.set_image(V2)
    draining = until("the drain in the status", 30, lambda: pool.status.get("draining"))[0]
    assert (draining["pod"], draining["cause"], draining["leases"]) == (name, "Rollout", 1)
    since, deadline = (datetime.fromisoformat(draining[k]) for k in ("since", "deadline"))
    assert since < deadline
    message = pool.until_condition("Draining", lambda c: c.get("status") == "True", 10)["message"]
    assert name in message
    wide = pool.stage.kube.kubectl("get", "wp", pool.name, "-o", "wide")
    described = pool.stage.kube.kubectl("describe", "wp", pool.name)
    assert "WaitingForDrain" in wide
    assert name in wide
    assert draining["deadline"] in wide
    assert name in described
    assert draining["deadline"] in described
    pool.wait_ended()
    pool.until_settled(1)
    assert len(pool.runs_of(task)) == 1


def test_c05_a_task_that_fails_while_its_pod_drains_ends_failed_and_frees_its_slot(make_pool: MakePool) -> None:
    pool = make_pool(replicas=1)
    task = pool.submit("fail", {"seconds": 8})
    pool.until_each_busy(1)
    with pool.watched() as record:
        pool.set_image(V2)
        until("its pod drains", 20, lambda: pool.status.get("draining"))
        assert pool.wait_ended(30) == {task: "failed"}
        until("no lease left", 5, lambda: not pool.held())
        pool.until_settled(1)
    assert record.deleted_busy == []
    shown = pool.stage.gateway.task(task)
    assert shown["error"]["error_type"] == "RuntimeError"
    pool_uid = pool.body["metadata"]["uid"]
    until("its slot free", 20, lambda: not any(n for k, n in pool.stage.store.slots().items() if pool_uid in k))


def test_c07_enough_pods_serve_all_along_and_the_cap_holds(make_pool: MakePool) -> None:
    rollout = {"maxSurge": 1, "maxUnavailable": 1}
    pool = make_pool(replicas=4, rollout=rollout, drain={"deadline": "10m", "maxDraining": 2})
    for _ in range(4):
        pool.render(15)
    pool.until_each_busy(4)
    with pool.watched() as record:
        pool.set_image(V2)
        until(
            "draining pods in status as on the pods",
            40,
            lambda: (
                (n := pool.status.get("drainingReplicas", 0)) > 0
                and n == sum("slackwater.dev/drain-cause" in p["metadata"].get("annotations", {}) for p in pool.pods())
            ),
        )
        pool.wait_ended()
        pool.until_settled(4, 120)
    assert record.lowest_serving() >= 3
    assert record.most_pods() <= 4 + 1 + 2
    assert record.deleted_busy == []
    pool.assert_each_ran_once()


def test_c09_at_the_deadline_the_worker_hands_back_and_another_pod_goes_on(make_pool: MakePool) -> None:
    pool = make_pool(replicas=1, drain={"deadline": "10s"})
    task = pool.render(40)
    pool.until_each_busy(1)
    old = pool.pods()[0]["metadata"]["uid"]
    with pool.watched() as record:
        pool.set_image(V2)
        second = until("the task's second run", 45, lambda: [r for r in pool.runs_of(task) if r.epoch == 2])
        pool.wait_ended()
        pool.until_settled(1)
    assert len(second) == 1
    assert record.exit_codes[old] == [3]
    verdict = pool.verdict()
    assert not verdict.paid_twice
    assert verdict.ends_by_task == {task: 1}
    events = [e for e in pool.stage.kube.events(pool.name) if task in e.get("message", "")]
    assert any(e["reason"] == "DrainDeadline" for e in events)
