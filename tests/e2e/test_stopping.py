"""How a worker container stops: C03, and a person's plain `kubectl delete pod`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.pools import PoolUnderTest, manifest
from tests.kit.waiting import until

CUSTOM_COMMAND = ["/opt/slackwater/bin/slackwater", "worker"]


def follow_log(pool: PoolUnderTest, pod: str, into: Path) -> subprocess.Popen[bytes]:
    kube = pool.stage.kube
    with into.open("wb") as log:
        return subprocess.Popen(
            kube.access.kubectl(kube.namespace, "logs", "-f", pod), stdout=log, stderr=subprocess.DEVNULL
        )


@pytest.mark.parametrize("command", [None, CUSTOM_COMMAND], ids=["default entrypoint", "custom command"])
def test_c03_a_deleted_busy_pod_hears_the_signal_drains_and_exits_0(
    make_pool: Callable[..., PoolUnderTest], tmp_path: Path, command: list[str] | None
) -> None:
    spec: dict[str, Any] = {}
    if command:
        spec["template"] = manifest("x", replicas=1, concurrency=1)["spec"]["template"]
        spec["template"]["spec"]["containers"][0]["command"] = command
    pool = make_pool(replicas=1, drain={"deadline": "90s"}, **spec)
    task = pool.render(10)
    pool.until_each_busy(1)
    pod = pool.pods()[0]["metadata"]
    log = tmp_path / "worker.log"
    follower = follow_log(pool, pod["name"], log)
    with pool.watched() as record:
        deleted = time.monotonic()
        pool.stage.kube.kubectl("delete", "pod", pod["name"], "--wait=false")
        until("the drain's log line", 3, lambda: "drain started" in log.read_text())
        later = pool.render(1)
        until("its end", 60, lambda: pod["uid"] not in {p["metadata"]["uid"] for p in pool.pods()})
        gone_seconds = time.monotonic() - deleted
        pool.wait_ended()
        pool.until_settled(1)
    follower.wait(10)
    assert record.exit_codes[pod["uid"]] == [0]
    assert gone_seconds < 30, "it waited for its task, not for the grace period of 120 s"
    pool.assert_each_ran_once()
    workers = {r.task: r.worker for r in pool.verdict().runs}
    assert workers[later] != workers[task], "nothing is claimed after the drain began"
