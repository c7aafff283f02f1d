"""The backlog of one channel has a limit of its own (R-NEXT-07), exact under contention, and hinders no other."""

from __future__ import annotations

import asyncio

import pytest

from slackwater.admission import Code, Limits
from slackwater.errors import Refused
from slackwater.policy import Policy
from slackwater.store import Store
from slackwater.store.admin import cancel
from slackwater.store.admission import Submit, submit, submit_many
from slackwater.store.policies import write_policy
from slackwater.store.retrying import retry

LIMITS = Limits(user_pending=1000, system_pending=1000, channel_pending={"narrow": 3})


def wish(channel: str, user: str = "alice") -> Submit:
    return Submit(type="t", user_id=user, payload={}, channel=channel)


async def test_many_users_at_once_fill_a_channel_exactly(store: Store) -> None:
    tries = [submit(store, wish("narrow", f"user{n}"), LIMITS) for n in range(12)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    refused = [result for result in results if isinstance(result, Refused)]
    assert len(results) - len(refused) == 3
    assert {r.code for r in refused} == {Code.CHANNEL_QUEUE_FULL}
    assert {tuple(sorted(r.detail.items())) for r in refused} == {(("limit", 3), ("queued_count", 3))}
    await submit(store, wish("wide"), LIMITS)
    await submit(store, wish(""), LIMITS)


async def test_a_batch_ends_where_its_channel_is_full(store: Store) -> None:
    batch = await submit_many(store, [wish(c) for c in ("narrow", "wide", "narrow", "narrow", "narrow")], LIMITS)
    assert len(batch.accepted) == 4
    assert batch.refusal is not None
    assert (batch.refusal.code, batch.refusal.queued, batch.refusal.limit) == (Code.CHANNEL_QUEUE_FULL, 3, 3)


async def test_the_user_s_own_limit_comes_first_and_a_retry_passes_the_same_gate(store: Store) -> None:
    first = (await submit(store, wish("narrow"), LIMITS)).task_id
    await cancel(store, first, who="alice")
    for user in ("a", "b", "c"):
        await submit(store, wish("narrow", user), LIMITS)
    refusal = await retry(store, first, LIMITS, who="alice")
    assert not isinstance(refusal, bool)
    assert refusal.code is Code.CHANNEL_QUEUE_FULL
    tight = Limits(user_pending=0, system_pending=1000, channel_pending={"narrow": 0})
    with pytest.raises(Refused) as refused:
        await submit(store, wish("narrow"), tight)
    assert refused.value.code == Code.USER_QUEUE_FULL


async def test_the_stored_policy_s_limit_is_the_one_that_counts(store: Store) -> None:
    await write_policy(store, Policy(channel_pending={"narrow": 1}), who="root")
    await submit(store, wish("narrow"))
    with pytest.raises(Refused):
        await submit(store, wish("narrow", "bob"))
    await submit(store, wish("wide", "bob"))
