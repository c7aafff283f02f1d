"""Settlements of a task that its user retried (rule 12): each is settled by what was submitted under it."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.claim import Failed
from slackwater.store import admin, retrying, submissions, writing
from tests.integration.world import World


async def failed_with_a_paid_submission(world: World) -> Any:
    claim = await world.running()
    asked = await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
    await submissions.resolve(world.store, claim, "render", asked.n, {"ok": False})
    await writing.finish(world.store, claim, Failed("RenderFailed", "it gave up"))
    assert await retrying.retry(world.store, claim.task_id, who="user") is True
    return claim.task_id


@pytest.fixture
async def retried(world: World) -> Any:
    await world.worker()
    return await failed_with_a_paid_submission(world)


async def test_a_retry_cancelled_before_it_asked_for_anything_is_refunded(world: World, retried: Any) -> None:
    await admin.cancel(world.store, retried, who="user")
    row = await world.row(retried)
    assert (row["state"], row["charged"], row["refunded"]) == ("cancelled", None, 5)


async def test_a_retry_cancelled_after_it_had_asked_again_is_charged(world: World, retried: Any) -> None:
    claimed = await world.try_claim(retried)
    assert claimed is not None
    asked = await submissions.intend(world.store, claimed.claim, "render", "stub", {"frame": 1}, after=1)
    await submissions.resolve(world.store, claimed.claim, "render", asked.n, {"ok": True})
    await admin.cancel(world.store, retried, who="user")
    row = await world.row(retried)
    assert (row["state"], row["charged"], row["refunded"]) == ("cancelled", 5, None)
