"""Rules 2 and 4: every write of an execution proves its claim, and one row lock decides who was first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from slackwater.claim import Claim, Done, Failed, Ground, HandedBack, OnInterrupt, TaskState
from slackwater.errors import InvalidInput, LeaseLost
from slackwater.retry import RetryDecision
from slackwater.store import Store, recovery, submissions, writing
from slackwater.store.fence import prove
from slackwater.store.sql import sql
from tests.integration.world import World

LOCK_TASK = "SELECT FROM slackwater.task WHERE id = %(id)s FOR UPDATE"
Write = Callable[[Store, Claim], Awaitable[Any]]
RENEWAL: Write = lambda store, claim: writing.renew(store, claim, evidence=True)  # noqa: E731
WRITES: dict[str, Write] = {
    "progress": lambda store, claim: writing.progress(store, claim, 0.5),
    "a checkpoint": lambda store, claim: writing.checkpoint(store, claim, {"frame": 3}),
    "an event": lambda store, claim: writing.add_event(store, claim, 7, "frame", {"n": 1}),
    "a result": lambda store, claim: writing.finish(store, claim, Done({"url": "x"})),
    "a failure": lambda store, claim: writing.finish(store, claim, Failed("Boom", "it broke")),
    "a retry": lambda store, claim: writing.finish(store, claim, Failed("B", "b"), retry=RetryDecision(1.0, "again")),
    "a hand-back": lambda store, claim: writing.finish(store, claim, HandedBack("DrainDeadline", started=True)),
    "an intent": lambda store, claim: submissions.intend(store, claim, "second", "stub", {"frame": 1}),
    "an outcome": lambda store, claim: submissions.resolve(store, claim, "first", 1, {"url": "x"}),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_write_under_a_lost_claim_changes_nothing_and_is_counted(world: World, what: str) -> None:
    await world.worker()
    claim = await world.running()
    await submissions.intend(world.store, claim, "first", "stub", {"frame": 1})
    await world.expire(claim)
    assert await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)
    before = await world.everything()

    with pytest.raises(LeaseLost):
        await WRITES[what](world.store, claim)

    assert await world.everything() == before
    assert await world.counter("stale_writes_refused") == 1


@pytest.mark.parametrize("what", WRITES)
async def test_a_write_under_the_claim_before_the_present_one_changes_nothing(world: World, what: str) -> None:
    await world.worker()
    old = await world.running()
    await submissions.intend(world.store, old, "first", "stub", {"frame": 1})
    await world.expire(old)
    await recovery.take_away(world.store, await world.seen(old), Ground.EXPIRED)
    assert await world.try_claim(old.task_id) is not None
    before = await world.everything()

    with pytest.raises(LeaseLost):
        await WRITES[what](world.store, old)

    assert await world.everything() == before


@pytest.mark.parametrize("what", [*WRITES, "a renewal"])
async def test_a_claim_that_a_failover_forgot_writes_nothing_though_its_epoch_was_given_again(
    world: World, what: str
) -> None:
    """An asynchronous failover loses the claim; the next one gets the same epoch, and only the token differs."""
    await world.worker()
    forgotten = await world.running()
    await submissions.intend(world.store, forgotten, "first", "stub", {"frame": 1})
    await world.sql("UPDATE slackwater.claim SET token = gen_random_uuid()")
    before = await world.everything()
    write = (WRITES | {"a renewal": RENEWAL})[what]

    with pytest.raises(LeaseLost):
        await write(world.store, forgotten)

    assert await world.everything() == before


@pytest.mark.parametrize("what", WRITES)
async def test_a_write_renews_a_lease_that_expired_but_was_not_taken_away(world: World, what: str) -> None:
    await world.worker()
    claim = await world.running()
    await submissions.intend(world.store, claim, "first", "stub", {"frame": 1})
    await world.expire(claim)

    await WRITES[what](world.store, claim)

    row = await world.row(claim.task_id)
    assert row["state"] != "running" or (row["lease_until"] - row["now"]).total_seconds() > 40


@pytest.mark.parametrize("what", [*WRITES, "a renewal"])
async def test_a_token_that_was_used_twice_opens_only_its_own_epoch(world: World, what: str) -> None:
    """Tokens are random, so this takes a fault of ours; the epoch stands behind them."""
    await world.worker()
    old = await world.running()
    await submissions.intend(world.store, old, "first", "stub", {"frame": 1})
    await world.expire(old)
    await recovery.take_away(world.store, await world.seen(old), Ground.EXPIRED)
    assert await world.try_claim(old.task_id, token=old.token) is not None
    before = await world.everything()

    with pytest.raises(LeaseLost):
        await (WRITES | {"a renewal": RENEWAL})[what](world.store, old)

    assert await world.everything() == before


async def test_a_claim_that_is_not_running_has_no_token_to_write_under(world: World) -> None:
    """Whoever ends a claim clears its token; the table holds them to it, whatever the fence asks for."""
    await world.worker()
    await world.running()

    with pytest.raises(psycopg.errors.CheckViolation):
        await world.sql("UPDATE slackwater.claim SET state = 'held'")
    with pytest.raises(psycopg.errors.CheckViolation):
        await world.sql("UPDATE slackwater.claim SET token = NULL")


async def test_an_expired_lease_that_nobody_took_is_renewed_and_a_lost_one_is_not(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    seen = await world.seen(claim)

    lease_until = await writing.renew(world.store, claim, evidence=False)

    assert lease_until > await world.store.now()
    assert not await recovery.take_away(world.store, seen, Ground.EXPIRED)
    await world.expire(claim)
    assert await recovery.take_away(world.store, seen, Ground.EXPIRED)
    with pytest.raises(LeaseLost):
        await writing.renew(world.store, claim, evidence=True)
    assert await world.counter("stale_writes_refused") == 0


async def test_a_renewal_in_flight_makes_the_take_away_miss(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    seen = await world.seen(claim)
    renewal = "UPDATE slackwater.claim SET lease_until = clock_timestamp() + interval '45 s' WHERE task_id = %(id)s"
    async with world.holding(renewal, id=claim.task_id):
        taking = asyncio.create_task(recovery.take_away(world.store, seen, Ground.EXPIRED))
        await world.blocked()

    assert not await taking
    assert (await world.row(claim.task_id))["state"] == "running"


async def test_a_take_away_in_flight_makes_the_renewal_miss(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.expire(claim)
    seen = await world.seen(claim)
    async with world.holding(LOCK_TASK, id=claim.task_id):
        taking = asyncio.create_task(recovery.take_away(world.store, seen, Ground.EXPIRED))
        await world.blocked()
        renewing = asyncio.create_task(writing.renew(world.store, claim, evidence=False))
        await world.blocked(2)

    assert await taking
    with pytest.raises(LeaseLost):
        await renewing


async def test_a_finish_in_flight_makes_the_cancel_miss_and_money_moves_once(world: World) -> None:
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    async with world.holding(LOCK_TASK, id=claim.task_id):
        finishing = asyncio.create_task(writing.finish(world.store, claim, Done(1)))
        await world.blocked()
        cancelling = asyncio.create_task(recovery.take_away(world.store, seen, Ground.CANCELLED))
        await world.blocked(2)

    assert await finishing is TaskState.DONE
    assert not await cancelling
    row = await world.row(claim.task_id)
    assert (row["charged"], row["refunded"], row["state"]) == (5, None, "done")


async def test_a_cancel_in_flight_makes_the_finish_miss_and_money_moves_once(world: World) -> None:
    await world.worker()
    claim = await world.running()
    seen = await world.seen(claim)
    async with world.holding(LOCK_TASK, id=claim.task_id):
        cancelling = asyncio.create_task(recovery.take_away(world.store, seen, Ground.CANCELLED))
        await world.blocked()
        finishing = asyncio.create_task(writing.finish(world.store, claim, Done(1)))
        await world.blocked(2)

    assert await cancelling
    with pytest.raises(LeaseLost):
        await finishing
    row = await world.row(claim.task_id)
    assert (row["charged"], row["refunded"], row["state"], row["result"]) == (None, 5, "cancelled", None)


ENDS: dict[str, tuple[Write, TaskState]] = {
    "done": (lambda store, claim: writing.finish(store, claim, Done(1)), TaskState.DONE),
    "failed": (lambda store, claim: writing.finish(store, claim, Failed("B", "b")), TaskState.FAILED),
    "retried": (
        lambda store, claim: writing.finish(store, claim, Failed("B", "b"), retry=RetryDecision(0.0, "")),
        TaskState.QUEUED,
    ),
    "handed back": (
        lambda store, claim: writing.hand_back(store, claim, reason="Drain", started=False),
        TaskState.QUEUED,
    ),
}


@pytest.mark.parametrize("what", ENDS)
async def test_an_end_whose_commit_reply_was_lost_may_be_repeated(world: World, what: str) -> None:
    await world.worker()
    claim = await world.running()
    write, state = ENDS[what]
    assert await write(world.store, claim) is state
    before = await world.everything()

    assert await write(world.store, claim) is state
    assert await world.everything() == before
    assert await world.counter("stale_writes_refused") == 0


async def test_a_repeat_while_the_first_commit_is_in_flight_waits_and_succeeds(world: World) -> None:
    await world.worker()
    claim = await world.running()
    async with world.holding(LOCK_TASK, id=claim.task_id):
        first = asyncio.create_task(writing.finish(world.store, claim, Done(1)))
        await world.blocked()
        again = asyncio.create_task(writing.finish(world.store, claim, Done(1)))
        await world.blocked(2)

    assert (await first, await again) == (TaskState.DONE, TaskState.DONE)
    assert await world.events(claim.task_id) == [(1, "started"), (2, "done")]


async def test_a_repeat_succeeds_even_after_the_task_was_claimed_again(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await writing.hand_back(world.store, claim, reason="Drain", started=False)
    assert await world.try_claim(claim.task_id) is not None
    before = await world.everything()

    assert await writing.hand_back(world.store, claim, reason="Drain", started=False) is TaskState.QUEUED
    assert await world.everything() == before


async def test_an_end_by_somebody_else_at_the_same_epoch_is_no_success(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await recovery.take_away(world.store, await world.seen(claim), Ground.ADMIN)

    with pytest.raises(LeaseLost):
        await writing.finish(world.store, claim, Done(1))


async def test_renewals_and_repeated_progress_move_no_sign_of_activity(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await writing.progress(world.store, claim, 0.5)
    before = await world.row(claim.task_id)

    await writing.renew(world.store, claim, evidence=False)
    await writing.progress(world.store, claim, 0.5)
    await writing.progress(world.store, claim, 0.4)
    await writing.checkpoint(world.store, claim, {"frame": 1})
    await writing.add_event(world.store, claim, 1, "waiting", {})
    still = await world.row(claim.task_id)
    await writing.renew(world.store, claim, evidence=True)
    evident = await world.row(claim.task_id)
    await writing.progress(world.store, claim, 0.6)
    moved = await world.row(claim.task_id)

    assert (still["active_at"], still["updated_at"], still["progress"]) == (
        before["active_at"],
        before["updated_at"],
        0.5,
    )
    assert evident["active_at"] > before["active_at"]
    assert evident["updated_at"] == before["updated_at"]
    assert moved["updated_at"] > before["updated_at"]
    assert moved["active_at"] > evident["active_at"]


async def test_a_settlement_is_settled_once(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await world.sql("UPDATE slackwater.settlement SET refunded = reserved, settled_at = clock_timestamp()")
    before = await world.one("SELECT * FROM slackwater.settlement")

    assert await writing.finish(world.store, claim, Done(1)) is TaskState.DONE

    assert await world.one("SELECT * FROM slackwater.settlement") == before


async def test_events_are_numbered_without_gaps_and_a_repeat_gets_the_first_number(world: World) -> None:
    await world.worker()
    claim = await world.running()
    counters = [*range(1, 16), *range(1, 16, 2)]

    numbers = await asyncio.gather(
        *(writing.add_event(world.store, claim, counter, "frame", {"n": counter}) for counter in counters)
    )

    by_counter: dict[int, set[int]] = {}
    for counter, seq in zip(counters, numbers, strict=True):
        by_counter.setdefault(counter, set()).add(seq)
    assert all(len(seqs) == 1 for seqs in by_counter.values())
    assert [seq for seq, _ in await world.events(claim.task_id)] == list(range(1, 17))


async def test_a_result_beyond_the_limits_is_refused_before_anything_is_written(world: World) -> None:
    await world.worker()
    claim = await world.running()
    before = await world.everything()

    for bad in ("x" * 1_100_000, {"a": float("nan")}, {"a": "\x00"}, object()):
        with pytest.raises(InvalidInput):
            await writing.finish(world.store, claim, Done(bad))

    assert await world.everything() == before


async def test_renewals_stay_heap_only(world: World) -> None:
    """No index names what they change: hundreds of workers renewing make no index grow."""
    await world.worker()
    claim = await world.running()
    counts = sql(
        "SELECT pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c)"
        " FROM CAST('slackwater.claim' AS regclass) c"
    )
    async with world.store.transaction() as connection:
        all_before, hot_before = (await connection.execute(counts)).one()
        for _ in range(3):
            await prove(connection, world.store, claim)
        all_after, hot_after = (await connection.execute(counts)).one()

    assert (all_after - all_before, hot_after - hot_before) == (3, 3)


async def test_an_error_text_is_cut_and_cleaned(world: World) -> None:
    await world.worker()
    claim = await world.running()

    await writing.finish(world.store, claim, Failed("Bo\x00om", "\ud800" + "ä" * 9000))

    row = await world.row(claim.task_id)
    assert row["error_info"]["error_type"] == "Boom"
    assert len(row["error_info"]["message"].encode()) <= 4096


@pytest.mark.parametrize(
    ("outcome", "retry", "state", "attempts", "charged", "refunded", "finished"),
    [
        (Done(1), None, "done", 1, 5, None, True),
        (Failed("B", "b"), None, "failed", 1, None, 5, True),
        (Failed("B", "b"), RetryDecision(None, "used up"), "failed", 1, None, 5, True),
        (Failed("B", "b"), RetryDecision(30.0, "again"), "queued", 1, None, None, False),
        (HandedBack("Drain", started=False), None, "queued", 0, None, None, False),
        (HandedBack("Drain", started=True), None, "failed", 0, None, 5, True),
    ],
)
async def test_money_attempts_and_times_move_with_the_state(
    world: World,
    outcome: Any,
    retry: RetryDecision | None,
    state: str,
    attempts: int,
    charged: int | None,
    refunded: int | None,
    finished: bool,
) -> None:
    await world.worker()
    claim = await world.running()

    assert await writing.finish(world.store, claim, outcome, retry=retry) == state

    row = await world.row(claim.task_id)
    assert (row["state"], row["attempts"], row["charged"], row["refunded"]) == (state, attempts, charged, refunded)
    assert (row["finished_at"] is not None) is finished
    assert (row["token"], row["lease_until"], row["old_token"]) == (None, None, None)
    if retry is not None and retry.again:
        assert 29 < (row["claimable_from"] - row["now"]).total_seconds() <= 30


@pytest.mark.parametrize(
    ("started", "on_interrupt", "submitted", "state"),
    [
        (False, OnInterrupt.FAIL, False, "queued"),
        (False, OnInterrupt.HOLD, True, "queued"),
        (True, OnInterrupt.FAIL, False, "failed"),
        (True, OnInterrupt.FAIL, True, "queued"),
        (True, OnInterrupt.REQUEUE, False, "queued"),
        (True, OnInterrupt.REQUEUE, True, "queued"),
        (True, OnInterrupt.HOLD, False, "held"),
        (True, OnInterrupt.HOLD, True, "held"),
    ],
)
async def test_what_a_hand_back_means(
    world: World, started: bool, on_interrupt: OnInterrupt, submitted: bool, state: str
) -> None:
    await world.worker()
    claim = await world.running()
    if submitted:
        await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})

    await writing.hand_back(
        world.store, claim, reason="DrainDeadline", started=started, checkpoint={"frame": 2}, on_interrupt=on_interrupt
    )

    row = await world.row(claim.task_id)
    assert (row["state"], row["interruptions"], row["attempts"]) == (state, 0, 0)
    assert row["checkpoint"] == {"frame": 2}
    assert (row["refunded"] == 5) is (state == "failed")


async def test_a_failure_with_an_open_submission_is_unknown_and_moves_no_money(world: World) -> None:
    await world.worker()
    claim = await world.running()
    await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})

    assert await writing.finish(world.store, claim, Failed("B", "b")) is TaskState.UNKNOWN

    row = await world.row(claim.task_id)
    assert (row["charged"], row["refunded"], row["finished_at"]) == (None, None, None)
