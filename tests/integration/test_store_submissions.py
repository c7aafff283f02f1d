"""Rule 11: one key per submission, nothing new while an older one is open, facts stored whoever holds the lease."""

from __future__ import annotations

import asyncio

import pytest

from slackwater.claim import Ground, submission_key
from slackwater.errors import InvalidInput
from slackwater.store import recovery, submissions
from tests.integration.world import World


async def test_the_intent_on_record_comes_back_with_its_own_request_after_a_lost_lease(world: World) -> None:
    await world.worker()
    claim = await world.running()
    first = await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    await world.expire(claim)
    await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)
    again = await world.try_claim(claim.task_id)
    assert again is not None

    second = await submissions.intend(world.store, again.claim, "render", "stub", {"frame": 999})

    assert (first.created, second.created) == (True, False)
    assert second == first
    assert second.request == {"frame": 1}
    assert second.key == submission_key(claim.task_id, "render", 1)


async def test_ten_concurrent_intents_of_one_name_are_one(world: World) -> None:
    await world.worker()
    claim = await world.running()

    made = await asyncio.gather(
        *(submissions.intend(world.store, claim, "render", "stub", {"frame": i}) for i in range(10))
    )

    assert sum(one.created for one in made) == 1
    assert len({one.key for one in made}) == 1


async def test_a_next_number_opens_only_after_the_one_before_is_resolved(world: World) -> None:
    await world.worker()
    claim = await world.running()
    first = await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})

    still = await submissions.intend(world.store, claim, "render", "stub", {"frame": 2}, after=1)
    await submissions.resolve(world.store, claim, "render", 1, {"failed": "no such frame"})
    same = await submissions.intend(world.store, claim, "render", "stub", {"frame": 2})
    following = await submissions.intend(world.store, claim, "render", "stub", {"frame": 2}, after=1)
    repeated = await submissions.intend(world.store, claim, "render", "stub", {"frame": 3}, after=1)

    assert still == first
    assert (same.n, same.outcome, same.resolved) == (1, {"failed": "no such frame"}, True)
    assert (following.n, following.request, following.created) == (2, {"frame": 2}, True)
    assert repeated == following
    assert following.key != first.key


async def test_reference_and_outcome_are_stored_once_whoever_holds_the_lease(world: World) -> None:
    await world.worker()
    claim = await world.running()
    made = await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    await world.expire(claim)
    await recovery.take_away(world.store, await world.seen(claim), Ground.EXPIRED)

    assert await submissions.store_reference(world.store, made.key, "job-1") == "job-1"
    assert await submissions.store_reference(world.store, made.key, "job-2") == "job-1"
    late = await submissions.store_outcome(world.store, made.key, {"url": "first"})
    later = await submissions.store_outcome(world.store, made.key, {"url": "second"})

    assert late is not None
    assert later == late
    assert late.outcome == {"url": "first"}
    assert (await world.row(claim.task_id))["state"] == "queued"
    assert await submissions.store_reference(world.store, "no-such-key", "x") is None
    assert await submissions.store_outcome(world.store, "no-such-key", {}) is None


async def test_a_request_that_json_cannot_hold_is_refused(world: World) -> None:
    await world.worker()
    claim = await world.running()

    with pytest.raises(InvalidInput):
        await submissions.intend(world.store, claim, "render", "stub", {"frame": float("inf")})
    assert await submissions.submissions(world.store, claim.task_id) == []
