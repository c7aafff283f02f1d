"""One operator goes and the other takes over: C29, and an operator's pod deleted during a drain."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audit import writes
from tests.kit.kube import Kube
from tests.kit.operators import ACCOUNT, LEASE
from tests.kit.pools import V2, PoolUnderTest, Stage
from tests.kit.waiting import until

MakePool = Callable[..., PoolUnderTest]
ALL = os.environ.get("SLACKWATER_KILLS") == "all"


def leader(kube: Kube) -> str:
    """The pod that holds the Lease; empty if nobody does."""
    spec = json.loads(kube.kubectl("get", "lease", LEASE, "-o", "json"))["spec"]
    return str(spec.get("holderIdentity") or "").rpartition("_")[0]


def settled_leader(kube: Kube) -> str:
    """One of two that are ready leads."""
    kube.kubectl("rollout", "status", "deployment/slackwater-operator", "--timeout=60s")

    def ask() -> str | None:
        name = leader(kube)
        return name if name and kube.pod(name) else None

    return until("one of the operator's pods leads", 40, ask)


def another_leader(kube: Kube, old: str) -> str:
    def ask() -> str | None:
        name = leader(kube)
        return name if name != old else None

    return until("the other one leads", 40, ask)


def test_c29_a_leader_that_was_frozen_past_its_lease_writes_nothing_more(
    make_pool: MakePool, stage: Stage, harness: Any
) -> None:
    if harness is None:
        pytest.skip("needs the harness: freezes a process, reads the audit log")
    audit = Path(harness.layout.audit_log)
    old = settled_leader(stage.kube)
    pool = make_pool(replicas=1)
    start = audit.stat().st_size
    with pool.watched() as record:
        freeze = threading.Thread(target=harness.faults.pause, args=(old,))
        pool.patch(replicas=4)
        freeze.start()
        freeze.join()
        try:
            new = another_leader(stage.kube, old)
            until("it has written", 20, lambda: [w for w in mine(audit, start, new) if w.resource != "leases"])
        finally:
            harness.faults.resume(old)
        stood_by = "executing itself into standby"
        until("the old one stands by", 30, lambda: stood_by in stage.kube.kubectl("logs", old, check=False))
        pool.until_settled(4)
        until("the new one has told of it", 20, lambda: pool.condition("Progressing").get("reason") == "Complete")
    first = min(w.at for w in mine(audit, start, new))
    late = [w for w in mine(audit, start, old) if w.at > first]
    assert late == []
    assert record.most_pods() <= 4
    assert leader(stage.kube) == new
    created = [w for w in writes(audit, account=ACCOUNT, start=start) if w.verb == "create" and w.resource == "pods"]
    assert len([w for w in created if w.accepted]) == 3


def mine(audit: Path, start: int, pod: str) -> list[Any]:
    return [w for w in writes(audit, account=ACCOUNT, start=start) if w.pod == pod]


@pytest.mark.parametrize("how", ["deleted", pytest.param("killed", marks=pytest.mark.skipif(not ALL, reason="long"))])
def test_the_operators_pod_goes_during_a_drain_and_the_other_resumes_it(
    make_pool: MakePool, stage: Stage, harness: Any, how: str
) -> None:
    old = settled_leader(stage.kube)
    pool = make_pool(replicas=1)
    pool.render(14 if how == "deleted" else 34)
    pool.until_each_busy(1)
    [pod] = pool.pods()
    with pool.watched() as record:
        pool.set_image(V2)
        before = until("its pod drains", 20, lambda: pool.status.get("draining"))[0]
        if how == "deleted":
            stage.kube.kubectl("delete", "pod", old, "--wait=false")
        else:
            harness.faults.kill(old)
        another_leader(stage.kube, old)
        assert pool.held(), "the task outlasts the change of leaders"
        after = pool.status["draining"][0]
        pool.wait_ended()
        pool.until_settled(1)
    assert (after["uid"], after["since"], after["deadline"]) == (
        pod["metadata"]["uid"], before["since"], before["deadline"],
    )  # fmt: skip
    assert record.deleted_busy == []
    assert record.exit_codes[pod["metadata"]["uid"]] == [0]
    pool.assert_each_ran_once()
