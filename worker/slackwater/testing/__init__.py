"""Try tasks out in process, under the real protocol. Rule: only the moment of a fault is pretended.

    from slackwater.testing import TaskHarness

    async def test_a_frame_is_paid_once_even_if_the_worker_is_drained():
        async with TaskHarness("shop.tasks") as h:
            run = await h.start("render", {"seconds": 2})
            await run.submitted()
            assert await run.interrupt() == "queued"
            assert (await run.result())["frame"] == "r-1"
            assert len(await run.submissions()) == 1

Store, slots, leases, renewal and the pipeline of a run are the worker's own, on an embedded PostgreSQL and Valkey (the
extra `slackwater[dev]`) or on servers that you name. Coroutines run on the test's own loop, so breakpoints and patches
work; plain functions run in a process of their own, as they do in a worker.

Waits that only pass time are skipped: a retry's back-off and a `RetryLater` run again at once (`skip_waits=False` keeps
them).
"""

from __future__ import annotations

from slackwater.testing.harness import TaskHarness
from slackwater.testing.run import HarnessError, Money, TaskEnded, TaskRun

__all__ = ["HarnessError", "Money", "TaskEnded", "TaskHarness", "TaskRun"]
