"""A worker process that is killed: C59, and the witness that gives its work back without waiting for the lease."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.kit.kill import kill_worker
from tests.kit.pools import PoolUnderTest
from tests.kit.waiting import until

LEASE_SECONDS = 9


def test_c59_a_killed_workers_task_runs_again_at_once_under_another_worker_and_is_paid_once(
    make_pool: Callable[..., PoolUnderTest],
) -> None:
    pool = make_pool(replicas=1)
    task = pool.render(15)
    pool.until_each_busy(1)
    pod = pool.pods()[0]
    first = until("its run at the provider", 20, lambda: pool.runs_of(task))[0]
    kill_worker(pool.stage.kube, pod, mark=f"SLACKWATER_POD_UID={pod['metadata']['uid']}")
    killed = time.monotonic()
    second = until("its second run", 60, lambda: [r for r in pool.runs_of(task) if r.epoch == 2])[0]
    assert time.monotonic() - killed < 60
    assert second.worker != first.worker
    assert pool.wait_ended() == {task: "done"}
    verdict = pool.verdict()
    assert verdict.ends_by_task == {task: 1}
    assert not verdict.paid_twice
    uid = pool.body["metadata"]["uid"]
    until("its slots free", 30, lambda: not any(n for k, n in pool.stage.store.slots().items() if uid in k))
