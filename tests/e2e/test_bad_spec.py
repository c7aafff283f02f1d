"""A bad revision never takes the good pods down, and its correction needs no hand: C12, C14."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.kube import is_ready, worker_status
from tests.kit.pools import V1, PoolUnderTest, manifest
from tests.kit.waiting import until

MakePool = Callable[..., PoolUnderTest]


def ready(pool: PoolUnderTest) -> list[str]:
    return [p["metadata"]["uid"] for p in pool.pods() if is_ready(p) and "deletionTimestamp" not in p["metadata"]]


def test_c12_an_image_that_does_not_exist_is_named_and_its_revert_heals_by_itself(make_pool: MakePool) -> None:
    pool = make_pool(replicas=3, rollout={"maxSurge": 0, "maxUnavailable": 1})
    revision = pool.status["updateRevision"]
    missing = "localhost/slackwater-render:nosuch"
    pool.set_image(missing)
    said = pool.until_condition("Progressing", lambda c: missing in c.get("message", ""), 60)
    assert said["reason"] == "ImagePull"
    assert len(ready(pool)) >= 2
    pool.render(1)
    pool.wait_ended(30)
    pool.set_image(V1)
    pool.until_settled(3, 60)
    assert pool.status["updateRevision"] == revision
    pool.assert_each_ran_once()


def test_c14_crashing_new_pods_are_replaced_first_by_the_corrected_spec(make_pool: MakePool) -> None:
    pool = make_pool(replicas=3, rollout={"maxSurge": 1, "maxUnavailable": 1})
    good: dict[str, Any] = manifest("x", replicas=3, concurrency=1)["spec"]["template"]
    bad = manifest("x", replicas=3, concurrency=1)["spec"]["template"]
    bad["spec"]["containers"][0]["env"][0]["value"] = "no.such.module"
    pool.patch(template=bad)

    def crashing() -> bool:
        return any(
            worker_status(p).get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
            for p in pool.pods()
        )

    until("a new pod crashes again and again", 90, crashing)
    said = pool.until_condition("Progressing", lambda c: c.get("reason") == "CrashLoop", 30)
    assert "exit code 2" in said["message"]
    assert "SLACKWATER_TASKS" in said["message"]
    assert len(ready(pool)) >= 2
    good["spec"]["containers"][0]["env"].append({"name": "FIXED", "value": "yes"})
    pool.patch(template=good)
    pool.until_settled(3, 90)
    assert pool.condition("Progressing")["reason"] == "Complete"
