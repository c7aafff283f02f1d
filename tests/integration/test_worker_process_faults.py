"""What happens to a worker process: killed, stopped, starved, cut off. The provider's log judges."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg

from slackwater.claim import Ground
from slackwater.slots import Kind, Scope, Slots
from slackwater.store.recovery import running_claims, take_away
from slackwater.store.url import plain_url
from tests.integration.servers import Postgres
from tests.integration.workers import SCALED, Bench, WorkerProcess, constants, until, with_bench

__all__ = ["constants", "with_bench"]
POOL = Scope(Kind.POOL, "pool-1")


async def held(bench: Bench) -> int:
    return (await Slots(bench.redis, constants=SCALED).count(POOL))[0]


async def fence(bench: Bench, task: UUID) -> None:
    """Take the task away from under a live execution, as an admin would."""
    (seen,) = await running_claims(bench.store, task_id=task)
    assert await take_away(bench.store, seen, Ground.ADMIN)


def is_gone(pid: int) -> bool:
    """No process, or a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def gone(pid: int) -> bool:
    return is_gone(pid)


async def pids_of(bench: Bench, task: UUID) -> list[int]:
    async def there() -> list[int] | None:
        row = await bench.query_one(
            "SELECT data FROM slackwater.event WHERE task_id = :task AND kind = 'pids' ORDER BY seq DESC LIMIT 1",
            task=task,
        )
        return list(row.data["pids"]) if row else None

    return await until("the task told its processes", there)


async def test_a_killed_workers_tasks_are_taken_back_at_once_by_its_pods_next_process(bench: Bench) -> None:
    """C59: the file lock is the witness, and no lease has to run out."""
    task = await bench.submit("render", seconds=2, poll_seconds=0.1)
    first = await bench.worker(run_dir=bench.directory, pod_uid="pod-a")
    await bench.stub.called("poll", task)
    dead = (await bench.row(task)).worker_id
    first.signal(signal.SIGKILL)
    await first.exit()
    # As soon as the new process is registered the task is free, whatever is left of the dead one's lease.
    second = await bench.worker(run_dir=bench.directory, pod_uid="pod-a")
    registered = await second.line("registered")
    assert registered["recovered"] == 1
    assert registered["worker"] != dead
    row = await bench.state(task, "done")
    assert (row.epoch, row.attempts) == (2, 1)
    assert row.worker_id == registered["worker"]
    assert len(bench.stub.calls("submit", task)) == 1
    ended = await bench.query_one("SELECT end_reason FROM slackwater.worker WHERE id = :id", id=dead)
    assert ended.end_reason == "witnessed"


async def test_a_killed_workers_tasks_wait_for_their_lease_without_a_witness(bench: Bench) -> None:
    """The same with another pod: the lease runs out first, then the task is run again and pays nothing twice."""
    task = await bench.submit("render", seconds=3, poll_seconds=0.1)
    first = await bench.worker(pod_uid="pod-a")
    await bench.stub.called("poll", task)
    first.signal(signal.SIGKILL)
    await first.exit()
    second = await bench.worker(pod_uid="pod-b")
    over = (await bench.row(task)).lease_until
    row = await bench.state(task, "done")
    claimed = await bench.query_one(
        "SELECT created_at FROM slackwater.event WHERE task_id = :task AND kind = 'started' AND epoch = 2", task=task
    )
    assert claimed.created_at >= over
    assert (row.epoch, row.worker_id) == (2, (await second.line("registered"))["worker"])
    assert len(bench.stub.calls("submit", task)) == 1
    assert sum(bench.stub.books.charges().values()) == 1


async def test_a_blocked_loop_and_a_burning_one_keep_their_leases(bench: Bench) -> None:
    """C55: for twice the lease, in two workers, and both are done by their first run."""
    blocked = await bench.submit("block", seconds=6.5)
    await bench.worker()
    await bench.stub.called("start", blocked)
    burning = await bench.submit("spin", seconds=6.5)
    await bench.worker()
    for task in (blocked, burning):
        row = await bench.state(task, "done", seconds=40)
        assert (row.epoch, row.attempts) == (1, 1)


async def test_a_worker_stopped_past_its_lease_finds_itself_fenced(bench: Bench) -> None:
    """C53: what the stopped one writes when it wakes changes nothing, and its slot's end frees no other's."""
    task = await bench.submit("render", seconds=6.5, poll_seconds=0.1)
    first = await bench.worker()
    await bench.stub.called("poll", task)
    first.signal(signal.SIGSTOP)
    second = await bench.worker()

    async def taken() -> bool:
        return bool((await bench.row(task)).epoch == 2)

    await until("the second run has the task", taken)
    first.signal(signal.SIGCONT)
    await first.line("fenced", task=str(task), epoch=1)
    assert await held(bench) == 1
    row = await bench.state(task, "done")
    assert row.epoch == 2
    assert row.worker_id == (await second.line("registered"))["worker"]
    keys = {call["key"] for call in bench.stub.calls("submit", task)}
    assert len(keys) == 1
    assert sum(bench.stub.books.charges().values()) == 1
    assert [call["epoch"] for call in bench.stub.calls("end", task)] == [2]


async def test_a_storm_of_cut_connections_ends_nothing(bench: Bench, postgres_url: str) -> None:
    """C63: every session of the product is terminated again and again, longer than a lease."""
    tasks = [await bench.submit("render", seconds=3.5, poll_seconds=0.1) for _ in range(2)]
    worker = await bench.worker()
    for task in tasks:
        await bench.stub.called("poll", task)
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'slackwater%'"
    async with await psycopg.AsyncConnection.connect(plain_url(postgres_url), autocommit=True) as admin:
        async with asyncio.timeout(20):
            while len(bench.stub.calls("end", tasks[0])) + len(bench.stub.calls("end", tasks[1])) < 2:
                await admin.execute(cut)
                await asyncio.sleep(0.4)  # the storm's own beat
    for task in tasks:
        row = await bench.state(task, "done")
        assert (row.epoch, row.attempts) == (1, 1)
    assert any(line["message"] == "renewal without answer" and line["cause"] for line in worker.lines)


async def test_a_fenced_process_and_all_its_children_are_killed(bench: Bench) -> None:
    task = await bench.submit("family", seconds=60, children=1)
    worker = await bench.worker()
    await bench.stub.called("start", task)
    pids = await pids_of(bench, task)
    await fence(bench, task)
    await worker.line("fenced", task=str(task))
    for pid in pids:
        await until(f"process {pid} is gone", lambda pid=pid: gone(pid))  # type: ignore[misc]
    again = await bench.submit("nap", seconds=0)
    await bench.state(again, "done")


async def test_a_process_does_not_outlive_its_killed_worker(bench: Bench) -> None:
    task = await bench.submit("family", seconds=60, children=0)
    worker = await bench.worker()
    await bench.stub.called("start", task)
    (own,) = await pids_of(bench, task)
    worker.signal(signal.SIGKILL)
    await worker.exit()
    await until("the task's process is gone", lambda: gone(own))


async def test_a_task_that_kills_its_worker_again_and_again_is_poison(bench: Bench) -> None:
    """C74: three interruptions without progress, then it fails; its neighbour is done all the same."""
    task = await bench.submit("poison")
    starts = 0
    worker: WorkerProcess | None = None
    while (await bench.row(task)).state != "failed":
        starts += 1
        assert starts <= 4
        worker = await bench.worker(run_dir=bench.directory, pod_uid="pod-a")
        if (await bench.row(task)).state == "failed":
            break
        assert await worker.exit() == -signal.SIGKILL
    row = await bench.row(task)
    assert row.error_info["error_type"] == "PoisonTask"
    assert len(bench.stub.calls("start", task)) == 3
    assert worker is not None
    well = await bench.submit("nap", seconds=0)
    await bench.state(well, "done")


async def test_redis_that_loses_its_data_ends_no_execution_and_is_rebuilt(bench: Bench) -> None:
    task = await bench.submit("render", seconds=3, poll_seconds=0.1)
    worker = await bench.worker()
    await bench.stub.called("poll", task)
    await bench.redis.flushall()
    await until("the running task has its slot again", lambda: is_held(bench, 1))
    other = await bench.submit("nap", seconds=0)
    await bench.state(other, "done")
    row = await bench.state(task, "done")
    assert row.epoch == 1
    assert not worker.said("fenced")
    await until("no slot is left", lambda: is_held(bench, 0))


async def is_held(bench: Bench, number: int) -> bool:
    return await held(bench) == number


async def test_without_redis_nothing_is_claimed_and_what_runs_goes_on(bench: Bench, redis_server: object) -> None:
    running = await bench.submit("render", seconds=3, poll_seconds=0.1)
    worker = await bench.worker()
    await bench.stub.called("poll", running)
    redis_server.pause()  # type: ignore[attr-defined]
    try:
        waiting = await bench.submit("nap", seconds=0)
        await worker.line("claiming pauses", reason="redis")
        row = await bench.state(running, "done")
        assert row.epoch == 1
        assert (await bench.row(waiting)).epoch == 0
    finally:
        redis_server.resume()  # type: ignore[attr-defined]
    await bench.state(waiting, "done")


async def test_a_refused_or_lost_submission_is_asked_again_under_its_key(bench: Bench) -> None:
    """A refusal that created nothing resolves nothing; a lost answer finds the render that was made."""
    refused = await bench.submit("render", seconds=0.2, poll_seconds=0.1)
    lost = await bench.submit("render", seconds=0.2, poll_seconds=0.1)
    await bench.fault(what="submit", task=str(refused), status=429, retry_after=0.2)
    await bench.fault(what="submit", task=str(lost), status=503, create=True)
    await bench.worker()
    for task in (refused, lost):
        row = await bench.state(task, "done", seconds=30)
        assert row.attempts == 2
        submits = bench.stub.calls("submit", task)
        assert len(submits) == 2
        assert len({call["key"] for call in submits}) == 1
        assert sum(call["charged"] for call in submits) == 1


async def test_what_user_code_may_do_is_an_outcome_and_never_the_workers_end(bench: Bench) -> None:
    worker = await bench.worker(concurrency=8)
    wanted = {
        await bench.submit("leaves", code=3): ("failed", "ProcessDied", "exit code 3"),
        await bench.submit("exits"): ("failed", "SystemExit", "7"),
        await bench.submit("slow"): ("failed", "HardTimeout", "hard time-out"),
        await bench.submit("nonsense"): ("failed", "InvalidResult", "nan"),
    }
    plain = [await bench.submit(kind, text="hello") for kind in ("effects", "effects-in-thread")]
    for task, (state, error, text) in wanted.items():
        row = await bench.state(task, "failed", "done")
        assert (row.state, row.error_info["error_type"]) == (state, error)
        assert text in row.error_info["message"]
    for task in plain:
        await has_all_effects(bench, task)
    assert worker.process.returncode is None


async def has_all_effects(bench: Bench, task: UUID) -> None:
    """Every effect of a plain function went through the worker."""
    row = await bench.state(task, "done", "failed")
    assert row.state == "done", row.error_info
    assert row.result["same"] is True
    assert row.result["request"] == {"n": 1}
    assert row.checkpoint == {"at": "end"}
    event = await bench.query_one(
        "SELECT data FROM slackwater.event WHERE task_id = :task AND kind = 'note'", task=task
    )
    assert event.data == {"text": "hello"}


async def test_a_plain_function_is_asked_to_stop_before_it_is_killed(bench: Bench) -> None:
    task = await bench.submit("asked-to-stop")
    worker = await bench.worker(grace_seconds=1)
    await bench.stub.called("start", task)
    worker.signal(signal.SIGTERM)
    assert await worker.exit() == 3
    assert len(bench.stub.calls("end", task)) == 1
    assert (await bench.row(task)).state == "queued"


def test_the_lock_is_free_only_when_the_last_process_is_dead(tmp_path: Path) -> None:
    """A task's process inherits the descriptor."""
    from slackwater.identity import PodLock

    ours = PodLock(tmp_path)
    assert ours.try_take()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(0)
    os.close(ours.inherit[0])
    later = PodLock(tmp_path)
    assert not later.try_take()
    os.write(write, b"x")
    os.waitpid(child, 0)
    assert later.try_take()


async def test_a_store_that_is_away_for_longer_than_the_lease_ends_nothing(
    bench: Bench, postgres_server: Postgres
) -> None:
    """Rule 4, with `silence` at its longest: the lease expired, nobody took it, and the renewal goes on."""
    task = await bench.submit("render", seconds=6, poll_seconds=0.1)
    # As with the real figures: after so late an expiry round nothing is freed without a witness.
    worker = await bench.worker(expiry_gap_seconds=2, expiry_quiet_seconds=15)
    await bench.stub.called("poll", task)
    before = await bench.row(task)
    await asyncio.to_thread(postgres_server.stop)
    try:
        await worker.line("renewal without answer", task=str(task))
        polls = len(bench.stub.calls("poll", task))
        assert polls  # its next effect is a progress, and waits

        async def over() -> bool:
            return bool(datetime.now(UTC) > before.lease_until + timedelta(seconds=0.5))

        await until("the lease is over", over)
    finally:
        await asyncio.to_thread(postgres_server.start)
    row = await bench.state(task, "done", seconds=30)
    assert (row.epoch, row.attempts) == (1, 1), worker.tail()
    assert [call["epoch"] for call in bench.stub.calls("end", task)] == [1]
