"""What the operator sees of a pool, in one look."""

from __future__ import annotations

from slackwater.claim import Done
from slackwater.store import overview, registration, writing
from tests.integration.world import World


async def test_the_overview_shows_workers_cordons_and_leases_by_pod_and_leaves_other_pools_out(world: World) -> None:
    await world.worker("w1", pod="pod1")
    await world.worker("w2", pod="pod2")
    await world.worker("elsewhere", pod="pod3", pool="pool2")
    live, expired = await world.running("w1"), await world.running("w1")
    await world.running("elsewhere")
    await world.expire(expired)
    await registration.heartbeat(world.store, "w1", 2)
    await registration.cordon(world.store, "pod1", origin="operator", cause="Rollout", deadline_seconds=60)
    await registration.cordon(
        world.store, "never-registered", origin="operator", cause="Rollout", deadline_seconds=None
    )
    await registration.end_worker(world.store, "w2", "drained")

    seen = await overview.pool_overview(world.store, "pool1")

    assert seen.admission == "Open"
    assert {worker.worker_id: (worker.pod_uid, worker.running, worker.end_reason) for worker in seen.workers} == {
        "w1": ("pod1", 2, None),
        "w2": ("pod2", 0, "drained"),
    }
    assert {pod: view.cordoned for pod, view in seen.cordons.items()} == {
        "pod1": True,
        "pod2": False,
        "never-registered": True,
    }
    assert list(seen.leases) == ["pod1"]
    assert {lease.task_id: lease.live for lease in seen.leases["pod1"]} == {
        str(live.task_id): True,
        str(expired.task_id): False,
    }
    assert all(lease.claimed_at <= seen.now for lease in seen.leases["pod1"])


async def test_an_unknown_pool_is_empty_and_says_so(world: World) -> None:
    seen = await overview.pool_overview(world.store, "nowhere")

    assert (seen.admission, seen.workers, dict(seen.leases), dict(seen.counters)) == (None, (), {}, {})


async def test_counters_are_kept_by_pool(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await writing.hand_back(world.store, claim, reason="x", started=False)

    assert (await overview.pool_overview(world.store, "pool1")).counters == {"tasks_requeued": 1}


async def test_the_usual_run_time_is_the_median_of_successes_by_type(world: World) -> None:
    await world.worker()
    for seconds in (10, 20, 300):
        claim = await world.running()
        await writing.finish(world.store, claim, Done(1))
        await world.sql(
            "UPDATE slackwater.task SET started_at = finished_at - make_interval(secs => %(s)s) WHERE id = %(id)s",
            s=seconds,
            id=claim.task_id,
        )

    assert await overview.usual_seconds(world.store) == {"t": 20.0}
