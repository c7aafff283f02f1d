"""How a worker process drains, hands back and leaves. The provider's log judges."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

from slackwater.slots import Kind, Scope, Slots
from slackwater.store.registration import call_off, condemn, cordon
from tests.integration.workers import SCALED, Bench, constants, until, with_bench

__all__ = ["constants", "with_bench"]
POOL = Scope(Kind.POOL, "pool-1")


async def held(bench: Bench) -> int:
    return (await Slots(bench.redis, constants=SCALED).count(POOL))[0]


def said_at(line: dict[str, str]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


async def test_a_render_is_paid_once_and_an_idle_worker_leaves_with_zero(bench: Bench) -> None:
    task = await bench.submit("render", seconds=0.4, poll_seconds=0.1)
    worker = await bench.worker()
    row = await bench.state(task, "done")
    assert (row.attempts, row.epoch) == (1, 1)
    assert row.result["seconds"] == 0.4
    assert [call["charged"] for call in bench.stub.calls("submit", task)] == [True]
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 0
    assert worker.said("cordon written")
    assert await held(bench) == 0


async def test_sigterm_finishes_what_runs_and_claims_nothing_more(bench: Bench) -> None:
    """C03 and C05: one task ends well while its worker drains, one fails, and a third is never started."""
    well, badly = await bench.submit("nap", seconds=1.2), await bench.submit("fail", seconds=1.2)
    worker = await bench.worker(concurrency=3)
    await bench.stub.called("start", well)
    await bench.stub.called("start", badly)
    asked = datetime.now(UTC)
    worker.signal(signal.SIGTERM)
    assert said_at(await worker.line("drain started")) - asked < timedelta(seconds=1)
    later = await bench.submit("nap", seconds=0)
    assert await worker.exit() == 0
    assert (await bench.row(well)).state == "done"
    failed = await bench.row(badly)
    assert failed.state == "failed"
    assert "beyond repair" in failed.error_info["message"]
    assert (await bench.row(later)).epoch == 0
    assert await held(bench) == 0


async def test_at_its_graces_end_a_worker_hands_back_and_the_next_run_reattaches(bench: Bench) -> None:
    """C09 by SIGTERM: render goes on elsewhere under the same key; nap fails, as it declares."""
    render = await bench.submit("render", seconds=4, poll_seconds=0.1)
    nap = await bench.submit("nap", seconds=60)
    first = await bench.worker(grace_seconds=2)
    await bench.stub.called("poll", render)
    await bench.stub.called("start", nap)
    first.signal(signal.SIGTERM)
    assert await first.exit() == 3
    assert (await bench.row(render)).state == "queued"
    row = await bench.row(nap)
    assert (row.state, row.error_info["error_type"]) == ("failed", "WorkerInterrupted")
    assert "DrainDeadline" in row.error_info["message"]
    assert row.attempts == 0
    assert await held(bench) == 0
    await bench.worker()
    row = await bench.state(render, "done")
    assert (row.epoch, row.attempts) == (2, 1)
    assert len(bench.stub.calls("submit", render)) == 1
    assert {call["epoch"] for call in bench.stub.calls("poll", render)} == {1, 2}


async def test_a_checkpoint_written_at_the_deadline_is_where_the_next_run_begins(bench: Bench) -> None:
    task = await bench.submit("steps", steps=40)
    first = await bench.worker(grace_seconds=1)
    await bench.stub.called("start", task)
    first.signal(signal.SIGTERM)
    assert await first.exit() == 3
    assert (await bench.row(task)).checkpoint["done"] > 0
    await bench.worker()
    result = (await bench.state(task, "done")).result
    assert result["done"] == 40
    assert result["began_at"] > 0


async def test_an_operators_deadline_hands_back_and_the_worker_stays_idle_until_told(bench: Bench) -> None:
    """C09 by the operator, and a drain that is called off in time."""
    worker = await bench.worker()
    port = (await worker.line("started"))["port"]
    seen = await cordon(bench.store, worker.pod_uid, origin="operator", cause="Rollout", deadline_seconds=None)
    await worker.line("cordoned", cause="Rollout")
    assert [await bench.get(port, path) for path in ("/readyz", "/livez", "/metrics", "/x")] == [200, 200, 200, 404]
    task = await bench.submit("render", seconds=60, poll_seconds=0.1)
    assert await call_off(bench.store, worker.pod_uid, seen.sequence)
    await bench.stub.called("poll", task)
    await cordon(bench.store, worker.pod_uid, origin="operator", cause="ScaleDown", deadline_seconds=0.5)
    await worker.line("handed back", reason="DrainDeadline", state="queued")
    await worker.line("standing", reason="idle until told")
    assert (await bench.row(task)).state == "queued"
    assert worker.process.returncode is None
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 3


async def test_a_condemned_worker_leaves_by_itself_though_no_signal_came(bench: Bench) -> None:
    """Its pod was deleted while it started, so the SIGTERM found nobody to hear it."""
    pod = "pod-condemned"
    await cordon(bench.store, pod, origin="operator", cause="ScaleDown", deadline_seconds=600)
    assert await condemn(bench.store, pod)
    worker = await bench.worker(pod_uid=pod)
    assert await worker.exit() == 0


async def test_a_second_signal_hands_back_at_once(bench: Bench) -> None:
    task = await bench.submit("render", seconds=60, poll_seconds=0.1)
    worker = await bench.worker()
    await bench.stub.called("poll", task)
    worker.signal(signal.SIGTERM)
    await worker.line("drain started")
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 3
    assert (await bench.row(task)).state == "queued"
    assert worker.said("handing back now")


async def test_code_that_ignores_cancellation_costs_its_worker_exit_code_4(bench: Bench) -> None:
    """Rule 16: it is not handed back while it may still run; a witness of the process's end frees it."""
    task = await bench.submit("stubborn", seconds=60)
    other = await bench.submit("nap", seconds=3.5)
    worker = await bench.worker(run_dir=bench.directory)
    await bench.stub.called("start", task)
    await bench.stub.called("start", other)
    await cordon(bench.store, worker.pod_uid, origin="operator", cause="Rollout", deadline_seconds=None)
    await bench.execute(
        "UPDATE slackwater.claim SET token = gen_random_uuid(), worker_id = 'somebody' WHERE task_id = :task", task=task
    )
    await worker.line("stubborn: the code did not stop")
    assert (await bench.row(other)).state == "running"
    assert await worker.exit() == 4
    assert (await bench.row(other)).state == "done"
    assert (await bench.row(task)).worker_id == "somebody"


async def test_a_signal_while_user_code_blocks_the_loop_still_stops_claiming_at_once(bench: Bench) -> None:
    task = await bench.submit("block", seconds=2.5)
    worker = await bench.worker()
    await bench.stub.called("start", task)
    asked = datetime.now(UTC)
    worker.signal(signal.SIGTERM)
    assert said_at(await worker.line("drain started")) - asked < timedelta(seconds=1)
    await worker.line("cordon written")
    assert bench.stub.calls("end", task) == []
    assert await worker.exit() == 0
    assert (await bench.row(task)).state == "done"


async def test_bad_settings_end_with_code_2_and_name_the_setting_to_the_kubelet_too(bench: Bench) -> None:
    log = bench.directory / "termination-log"
    log.touch()
    worker = await bench.worker(ready=False, environment={"SLACKWATER_RENEW_SECONDS": "2"})
    assert await worker.exit() == 2
    assert "SLACKWATER_RENEW_SECONDS" in worker.tail()
    assert "SLACKWATER_RENEW_SECONDS" in log.read_text()


async def test_a_store_that_is_not_there_yet_is_waited_for_and_a_signal_ends_the_wait(bench: Bench) -> None:
    worker = await bench.worker(
        ready=False, environment={"DATABASE_URL": "postgresql://postgres@/postgres?host=/nowhere"}
    )
    await worker.line("not registered yet")
    port = (await worker.line("started"))["port"]
    assert await bench.get(port, "/readyz") == 503
    assert await bench.get(port, "/livez") == 200
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 0


async def test_a_blocked_main_loop_turns_liveness_bad_and_the_probe_still_answers(bench: Bench) -> None:
    """C67: the renewals go on, and yet the kubelet is told."""
    task = await bench.submit("block", seconds=3)
    worker = await bench.worker(live_seconds=1)
    port = (await worker.line("started"))["port"]
    assert await bench.get(port, "/livez") == 200
    await bench.stub.called("start", task)

    async def dead() -> bool:
        return await bench.get(port, "/livez") == 503

    await until("liveness is bad", dead, 3)
    row = await bench.state(task, "done")
    assert row.epoch == 1
