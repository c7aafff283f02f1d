"""Rules 3, 9, 12, 13: a take-away restates its premise, and what follows is decided on what the rows say then."""

from __future__ import annotations

import asyncio
import dataclasses
from uuid import uuid4

import psycopg
import pytest

from slackwater.claim import Candidate, Declaration, Ground, OnInterrupt, TaskState
from slackwater.errors import LeaseLost
from slackwater.schema import POOL_CHANNEL, WAKE_CHANNEL
from slackwater.store import claiming, recovery, registration, submissions, writing
from slackwater.store.settling import Verdict, facts, settle
from tests.integration.world import World

FAIL, REQUEUE, HOLD = (
    Declaration(on_interrupt=how) for how in (OnInterrupt.FAIL, OnInterrupt.REQUEUE, OnInterrupt.HOLD)
)


async def candidates(world: World) -> list[Candidate]:
    return await claiming.candidates(world.store, queues=["default"], types=["t"], limit=10)


@pytest.mark.parametrize("change", [{"epoch": 2}, {"token": uuid4()}, {"task_id": uuid4()}])
async def test_a_take_away_misses_unless_epoch_and_token_are_as_read(world: World, change: dict[str, object]) -> None:
    await world.worker()
    claim = await world.running()
    seen = dataclasses.replace(await world.seen(claim), **change)  # type: ignore[arg-type]
    before = await world.everything()

    for ground in (Ground.WITNESSED, Ground.CANCELLED, Ground.ADMIN, Ground.STALE):
        assert not await recovery.take_away(world.store, seen, ground)
    assert await world.everything() == before


async def test_a_live_lease_is_not_taken_as_expired(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    seen = await world.seen(claim)
    await writing.renew(world.store, claim, evidence=False)

    assert not await recovery.take_away(world.store, seen, Ground.EXPIRED)
    assert (await world.row(claim.task_id))["state"] == "running"


async def test_of_ten_concurrent_take_aways_one_succeeds(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    seen = await world.seen(claim)

    taken = await asyncio.gather(*(recovery.take_away(world.store, seen, Ground.EXPIRED) for _ in range(10)))

    assert taken.count(True) == 1
    assert (await world.row(claim.task_id))["interruptions"] == 1
    assert await world.counter("tasks_requeued") == 1


async def test_a_fenced_task_is_claimable_only_after_the_lease_that_its_execution_may_act_under(world: World) -> None:
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=-20)

    assert await recovery.take_away(world.store, seen, Ground.DEADLINE)

    row = await world.row(claim.task_id)
    assert (row["state"], row["claimable_from"], row["old_token"]) == ("queued", seen.lease_until, claim.token)
    assert await candidates(world) == []
    await world.worker("w2", pod="pod2")
    assert await world.try_claim(claim.task_id, "w2") is None
    await world.sql("UPDATE slackwater.claim SET claimable_from = clock_timestamp() - interval '1 ms'")
    assert await world.try_claim(claim.task_id, "w2") is not None
    assert (await world.row(claim.task_id))["old_token"] is None


async def test_a_fenced_task_that_is_ended_while_it_waits_keeps_the_old_execution_in_mind(world: World) -> None:
    """Else a retry could be claimed, and its slot given away, while the fenced execution still acts."""
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=-20)
    await recovery.take_away(world.store, seen, Ground.DEADLINE)

    async with world.store.transaction() as connection:
        known = await facts(connection, claim.task_id)
        await settle(connection, claim.task_id, claim.epoch, Verdict(TaskState.CANCELLED), known)

    row = await world.row(claim.task_id)
    assert (row["state"], row["claimable_from"], row["old_token"]) == ("cancelled", seen.lease_until, claim.token)


async def test_a_task_whose_lease_was_over_is_claimable_at_once(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)

    row = await world.row(claim.task_id)
    assert row["old_token"] is None
    assert [candidate.task_id for candidate in await candidates(world)] == [claim.task_id]


async def test_a_witnessed_death_needs_no_waiting_and_ends_the_worker(world: World) -> None:
    await world.worker()
    await world.worker("w2", pod="pod2")
    claims = [await world.running(), await world.running()]
    other = await world.running("w2")

    assert await recovery.witness(world.store, "w1") == 2

    assert {candidate.task_id for candidate in await candidates(world)} == {claim.task_id for claim in claims}
    assert (await world.row(other.task_id))["state"] == "running"
    row = await world.one("SELECT end_reason FROM slackwater.worker WHERE id = 'w1'")
    assert row["end_reason"] == "witnessed"
    assert await world.try_claim(claims[0].task_id, "w1") is None
    assert await recovery.witness(world.store, "w1") == 0


@pytest.mark.parametrize(
    ("declared", "submitted", "state", "error", "refunded"),
    [
        (FAIL, False, "failed", "WorkerInterrupted", 5),
        (REQUEUE, False, "queued", None, None),
        (HOLD, False, "held", "WorkerInterrupted", None),
        (FAIL, True, "queued", None, None),
        (REQUEUE, True, "queued", None, None),
        (HOLD, True, "held", "WorkerInterrupted", None),
    ],
)
@pytest.mark.parametrize("ground", [Ground.EXPIRED, Ground.WITNESSED, Ground.DEADLINE])
async def test_an_interruption_means_what_the_type_declares_and_never_ends_paid_work(
    world: World,
    ground: Ground,
    declared: Declaration,
    submitted: bool,
    state: str,
    error: str | None,
    refunded: int | None,
) -> None:
    await world.worker()
    claim = await world.running()
    if submitted:
        await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    if ground is Ground.EXPIRED:
        await world.expire(claim)
    if ground is Ground.DEADLINE:
        await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=-20)

    assert await recovery.take_away(world.store, await world.seen(claim), ground, policy=declared)

    row = await world.row(claim.task_id)
    assert (row["state"], row["refunded"], row["charged"]) == (state, refunded, None)
    assert (row["error_info"] or {}).get("error_type") == error
    assert (row["finished_at"] is not None) is (state == "failed")
    assert (row["attempts"], row["interruptions"]) == (0, 0 if ground is Ground.DEADLINE else 1)
    assert (row["token"], row["lease_until"]) == (None, None)


@pytest.mark.parametrize(
    ("ground", "state", "error"),
    [
        (Ground.STALE, "failed", "WorkerInterrupted"),
        (Ground.ADMIN, "failed", "Finalized"),
        (Ground.CANCELLED, "cancelled", "Cancelled"),
    ],
)
@pytest.mark.parametrize("submission", ["none", "open", "resolved"])
async def test_what_ends_a_task_refunds_only_if_no_submission_is_open(
    world: World, ground: Ground, state: str, error: str, submission: str
) -> None:
    await world.worker()
    claim = await world.running()
    if submission != "none":
        await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    if submission == "resolved":
        await submissions.resolve(world.store, claim, "render", 1, {"url": "x"})

    assert await recovery.take_away(world.store, await world.seen(claim), ground)

    row = await world.row(claim.task_id)
    assert row["error_info"]["error_type"] == error
    if submission == "open":
        assert (row["state"], row["charged"], row["refunded"], row["finished_at"]) == ("unknown", None, None, None)
    elif ground is Ground.CANCELLED and submission == "resolved":
        assert (row["state"], row["charged"], row["refunded"]) == ("cancelled", 5, None)
    else:
        assert (row["state"], row["charged"], row["refunded"]) == (state, None, 5)
    assert set(row["error_info"]) == {"error_type", "message"}
    for secret in (str(claim.task_id), str(claim.token), "w1", "pod1"):
        assert secret not in str(row["error_info"])


async def test_an_intent_that_commits_while_the_take_away_waits_is_seen(world: World) -> None:
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    intent = """
        WITH fence AS (UPDATE slackwater.claim SET lease_until = clock_timestamp() + interval '9 s'
                       WHERE task_id = %(id)s RETURNING task_id)
        INSERT INTO slackwater.submission (task_id, name, n, key, provider, request, epoch)
        SELECT task_id, 'render', 1, 'k', 'stub', '{}', 1 FROM fence
    """
    async with world.holding(intent, id=claim.task_id):
        cancelling = asyncio.create_task(recovery.take_away(world.store, seen, Ground.CANCELLED))
        await world.blocked()

    assert await cancelling
    row = await world.row(claim.task_id)
    assert (row["state"], row["refunded"]) == ("unknown", None)


@pytest.mark.parametrize(("submitted", "state", "refunded"), [(False, "failed", 5), (True, "unknown", None)])
async def test_the_third_interruption_without_progress_is_poison(
    world: World, submitted: bool, state: str, refunded: int | None
) -> None:
    await world.worker()
    task_id = await world.task()
    for nth in (1, 2, 3):
        claimed = await world.try_claim(task_id)
        assert claimed is not None
        assert claimed.interruptions == nth - 1
        if submitted:
            await submissions.intend(world.store, claimed.claim, "render", "stub", {"frame": 1})
        await world.expire(claimed.claim)
        await recovery.take_away(world.store, await world.seen(claimed.claim), Ground.EXPIRED, policy=REQUEUE)

    row = await world.row(task_id)
    error = (row["error_info"] or {}).get("error_type")
    assert (row["state"], error, row["refunded"]) == (state, "PoisonTask", refunded)


async def test_progress_between_interruptions_and_hand_backs_keep_a_task_from_being_poison(world: World) -> None:
    await world.worker()
    task_id = await world.task()
    for nth in range(1, 6):
        claimed = await world.try_claim(task_id)
        assert claimed is not None
        await writing.progress(world.store, claimed.claim, nth / 10)
        await recovery.take_away(world.store, await world.seen(claimed.claim), Ground.WITNESSED, policy=REQUEUE)
    for _ in range(5):
        claimed = await world.try_claim(task_id)
        assert claimed is not None
        await writing.hand_back(
            world.store, claimed.claim, reason="Drain", started=True, on_interrupt=OnInterrupt.REQUEUE
        )

    row = await world.row(task_id)
    assert (row["state"], row["interruptions"], row["attempts"]) == ("queued", 1, 0)


async def test_a_type_that_nobody_declared_is_failed_and_never_repeated(world: World) -> None:
    await world.worker(declarations={"other": {}})
    claim = await world.running()
    await world.expire(claim)
    await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)

    assert (await world.row(claim.task_id))["state"] == "failed"


async def test_the_declaration_that_the_worker_registered_decides(world: World) -> None:
    await world.worker(declarations={"t": {"on_interrupt": "hold", "something_newer": 1}})
    claim = await world.running()
    await world.expire(claim)
    await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)

    assert (await world.row(claim.task_id))["state"] == "held"


async def test_activity_after_the_look_saves_a_stale_execution(world: World) -> None:
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    await writing.renew(world.store, claim, evidence=True)

    assert not await recovery.take_away(world.store, seen, Ground.STALE)
    assert await recovery.take_away(world.store, await world.seen(claim), Ground.STALE)


async def test_the_executions_own_activity_does_not_save_a_fed_task_but_its_producers_does(world: World) -> None:
    await world.worker()
    one, two = await world.running(), await world.running()
    seen_one, seen_two = await world.seen(one), await world.seen(two)
    await writing.renew(world.store, one, evidence=True)
    await world.sql("UPDATE slackwater.task SET updated_at = clock_timestamp() WHERE id = %(id)s", id=two.task_id)
    fed = Declaration(fed=True)

    assert await recovery.take_away(world.store, seen_one, Ground.STALE, policy=fed)
    assert not await recovery.take_away(world.store, seen_two, Ground.STALE, policy=fed)
    assert (await world.row(one.task_id))["error_info"]["error_type"] == "ProducerSilent"


@pytest.mark.parametrize(("deadline", "taken"), [(-16, True), (-14, False), (60, False), (None, False)])
async def test_a_deadline_takes_what_is_left_15_seconds_after_it(
    world: World, deadline: float | None, taken: bool
) -> None:
    await world.worker()
    claim = await world.running()
    await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=deadline)

    assert await recovery.take_away(world.store, await world.seen(claim), Ground.DEADLINE) is taken


async def test_a_drain_called_off_takes_nothing_at_its_deadline(world: World) -> None:
    await world.worker()
    claim = await world.running()
    view = await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=-60)
    seen = await world.seen(claim)
    lift = "UPDATE slackwater.cordon SET since = NULL, deadline = NULL, origin = NULL WHERE sequence = %(sequence)s"
    async with world.holding(lift, sequence=view.sequence):
        taking = asyncio.create_task(recovery.take_away(world.store, seen, Ground.DEADLINE))
        await world.blocked()

    assert not await taking


async def test_a_requeue_wakes_the_queue_and_an_end_in_a_cordoned_pod_wakes_the_operator(world: World) -> None:
    await world.worker()
    quiet, requeued = await world.running(), await world.running()
    async with await psycopg.AsyncConnection.connect(world.url, autocommit=True) as listener:
        await listener.execute(f"LISTEN {WAKE_CHANNEL}")
        await listener.execute(f"LISTEN {POOL_CHANNEL}")
        await recovery.take_away(world.store, await world.seen(quiet), Ground.ADMIN)
        await registration.cordon(world.store, "pod1", origin="operator", cause="Spot", deadline_seconds=None)
        await recovery.take_away(world.store, await world.seen(requeued), Ground.WITNESSED)
        told = [(notice.channel, notice.payload) async for notice in listener.notifies(timeout=2, stop_after=3)]

    assert sorted(told) == [(POOL_CHANNEL, "pool1"), (POOL_CHANNEL, "pool1"), (WAKE_CHANNEL, "default")]


async def test_the_epoch_rises_with_every_claim_and_never_falls(world: World) -> None:
    await world.worker()
    task_id = await world.task()
    epochs = []
    for _ in range(3):
        claimed = await world.try_claim(task_id)
        assert claimed is not None
        epochs.append(claimed.claim.epoch)
        await recovery.take_away(world.store, await world.seen(claimed.claim), Ground.WITNESSED, policy=HOLD)
        await world.sql("UPDATE slackwater.claim SET state = 'queued'")

    assert epochs == [1, 2, 3]


async def test_an_execution_that_was_taken_away_learns_it_at_its_next_renewal(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await recovery.take_away(world.store, await world.seen(claim), Ground.CANCELLED)

    with pytest.raises(LeaseLost):
        await writing.renew(world.store, claim, evidence=False)
