"""Late results, and tasks whose end nobody knows: recorded once, charged once, or written off as cost."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from slackwater.claim import Claim, Ground, Submission, TaskState
from slackwater.errors import InvalidInput
from slackwater.store import Store, recovery, submissions
from slackwater.store.admin import StateStands, cancel, finalize
from slackwater.store.adopting import adopt, late_result, unknown_tasks
from slackwater.store.retrying import retry
from tests.integration.world import World


async def unknown(world: World) -> tuple[Claim, Submission]:
    """A task that was cancelled while its provider had been asked and not answered."""
    await world.worker()
    claim = await world.running()
    made = await submissions.intend(world.store, claim, "frame", "stub", {"frame": 1})
    assert await cancel(world.store, claim.task_id, who="alice") is TaskState.UNKNOWN
    return claim, made


async def money(world: World, task: UUID) -> list[tuple[object, object, object]]:
    rows = await world.sql(
        "SELECT charged, refunded, late_cost FROM slackwater.settlement WHERE task_id = %(id)s ORDER BY n", id=task
    )
    return [(row["charged"], row["refunded"], row["late_cost"]) for row in rows]


async def test_adopting_charges_attaches_the_result_and_happens_once(store: Store, world: World) -> None:
    claim, made = await unknown(world)
    assert await adopt(store, claim.task_id, result={"url": "mine"}, who="root", reason="seen at the provider")
    row = await world.row(claim.task_id)
    assert (row["state"], row["result"], row["error_info"]) == ("done", {"url": "mine"}, None)
    assert await money(world, claim.task_id) == [(5, None, None)]
    assert (await world.events(claim.task_id))[-1][1] == "done"
    with pytest.raises(StateStands, match="done"):
        await adopt(store, claim.task_id, result={"url": "other"}, who="root")
    (stored,) = await submissions.submissions(store, claim.task_id)
    assert stored.outcome == {"adopted_by": "root", "reason": "seen at the provider"}
    assert stored.key == made.key
    audit = await world.one("SELECT who, detail FROM slackwater.audit WHERE action = 'adopt'")
    assert audit == {"who": "root", "detail": {"reason": "seen at the provider"}}


async def test_without_a_result_the_outcome_on_record_is_adopted(store: Store, world: World) -> None:
    claim, made = await unknown(world)
    with pytest.raises(InvalidInput, match="result"):
        await adopt(store, claim.task_id, who="root")
    assert await late_result(store, made.key, {"url": "late"}, who="callback") is not None
    assert await adopt(store, claim.task_id, who="root")
    assert (await world.row(claim.task_id))["result"] == {"url": "late"}


async def test_only_an_unknown_task_is_adopted(store: Store, world: World) -> None:
    await world.worker()
    claim = await world.running()
    with pytest.raises(StateStands, match="running"):
        await adopt(store, claim.task_id, result=1, who="root")
    assert not await adopt(store, UUID(int=1), result=1, who="root")


async def test_of_two_administrators_one_adopts_or_finalizes(store: Store, world: World) -> None:
    claim, _ = await unknown(world)
    ends = await asyncio.gather(
        adopt(store, claim.task_id, result=1, who="a"),
        finalize(store, claim.task_id, who="b"),
        adopt(store, claim.task_id, result=2, who="c"),
        return_exceptions=True,
    )
    assert sum(isinstance(end, StateStands) for end in ends) == 2
    charged, refunded, _ = (await money(world, claim.task_id))[0]
    assert (charged is None) != (refunded is None)


async def test_a_result_after_a_refund_is_recorded_as_cost_once(store: Store, world: World) -> None:
    claim, made = await unknown(world)
    assert await finalize(store, claim.task_id, who="root") is TaskState.FAILED
    assert await money(world, claim.task_id) == [(None, 5, None)]
    for outcome in ({"url": "late"}, {"url": "later"}):
        found = await late_result(store, made.key, outcome, who="callback")
        assert found is not None
        assert found.outcome == {"url": "late"}
    assert await money(world, claim.task_id) == [(None, 5, 5)]
    assert (await world.row(claim.task_id))["state"] == "failed"


async def test_the_cost_falls_on_the_settlement_that_paid_for_the_submission(store: Store, world: World) -> None:
    claim, made = await unknown(world)
    await finalize(store, claim.task_id, who="root")
    assert await retry(store, claim.task_id, who="alice") is True
    await late_result(store, made.key, {"url": "late"}, who="callback")
    assert await money(world, claim.task_id) == [(None, 5, 5), (None, None, None)]


async def test_a_result_before_the_end_is_no_late_cost(store: Store, world: World) -> None:
    await world.worker()
    claim = await world.running()
    made = await submissions.intend(store, claim, "frame", "stub", {})
    await world.expire(claim)
    await recovery.take_away(store, await world.seen(claim), Ground.EXPIRED)
    await submissions.store_outcome(store, made.key, {"url": "early"})
    assert await money(world, claim.task_id) == [(None, None, None)]
    assert await late_result(store, "no-such-key", 1, who="x") is None


async def test_a_late_result_waits_for_whoever_is_ending_the_task(store: Store, world: World) -> None:
    claim, made = await unknown(world)
    lock = f"SELECT FROM slackwater.claim WHERE task_id = '{claim.task_id}' FOR UPDATE"
    async with world.holding(lock):
        late = asyncio.create_task(submissions.store_outcome(store, made.key, {"url": "late"}))
        await world.blocked()
        assert not late.done()
    assert await late is not None


async def test_unknown_tasks_are_counted_with_the_age_of_the_oldest(store: Store, world: World) -> None:
    assert (await unknown_tasks(store)).count == 0
    await unknown(world)
    await world.sql("UPDATE slackwater.event SET created_at = created_at - interval '1 hour'")
    found = await unknown_tasks(store)
    assert found.count == 1
    assert 3600 <= found.oldest_seconds < 3700
