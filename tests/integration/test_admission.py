"""Admission on a real database: exact limits, repeats, users apart, batches, and what a full queue leaves behind."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from slackwater.admission import Code, Limits
from slackwater.errors import InvalidInput, PolicyUnreadable, Refused
from slackwater.policy import Policy
from slackwater.store import Store
from slackwater.store.admission import Accepted, Submit, submit, submit_many
from slackwater.store.policies import write_policy

WIDE = Limits(user_pending=1000, system_pending=1000)


def task(user: str = "alice", **more: Any) -> Submit:
    return Submit(**{"type": "render", "user_id": user, "payload": {"frame": 1}, **more})


async def one(store: Store, statement: str, **values: object) -> Any:
    async with store.transaction() as connection:
        return (await connection.execute(text(statement), values)).one()


async def rows(store: Store, statement: str, **values: object) -> list[Any]:
    async with store.transaction() as connection:
        return list((await connection.execute(text(statement), values)).all())


async def count(store: Store, table: str) -> int:
    return int((await one(store, f"SELECT count(*) FROM slackwater.{table}"))[0])


async def tally(store: Store, requests: list[Submit], limits: Limits) -> tuple[int, dict[str, int]]:
    results = await asyncio.gather(*(submit(store, r, limits) for r in requests), return_exceptions=True)
    codes: dict[str, int] = {}
    for result in results:
        if isinstance(result, Refused):
            codes[result.code] = codes.get(result.code, 0) + 1
        elif isinstance(result, BaseException):
            raise result
    return sum(isinstance(r, Accepted) for r in results), codes


async def set_state(store: Store, task_id: UUID, state: str) -> None:
    """As a worker would leave it; only what admission looks at."""
    running = "token = gen_random_uuid()" if state == "running" else "token = NULL"
    async with store.transaction() as connection:
        await connection.execute(
            text(f"UPDATE slackwater.claim SET state = :state, {running} WHERE task_id = :id"),
            {"state": state, "id": task_id},
        )


async def test_a_task_is_stored_whole(store: Store) -> None:
    accepted = await submit(store, task(priority=2, cost=3, idempotency_key="k", channel="gpu"), Limits())
    row = await one(
        store,
        """
        SELECT t.type, t.payload, c.state, c.epoch, c.order_key, c.channel, s.reserved, e.seq, e.kind, o.seq AS told
          FROM slackwater.task t JOIN slackwater.claim c ON c.task_id = t.id
          JOIN slackwater.settlement s ON s.task_id = t.id AND s.n = 1
          JOIN slackwater.event e ON e.task_id = t.id
          JOIN slackwater.outbox o ON o.task_id = t.id
          JOIN slackwater.idempotency i ON i.task_id = t.id
         WHERE t.id = :id
        """,
        id=accepted.task_id,
    )
    assert tuple(row) == ("render", {"frame": 1}, "queued", 0, -20.0, "gpu", 3, 1, "queued", 1)


async def test_fifty_at_once_leave_exactly_the_systems_limit(store: Store) -> None:
    # Fewer than there are connections, so that one round of them at the same time would pass it.
    requests = [task(f"user{i}") for i in range(50)]
    accepted, codes = await tally(store, requests, Limits(user_pending=3, system_pending=7))
    assert accepted == 7
    assert codes == {Code.SYSTEM_QUEUE_FULL: 43}
    assert await count(store, "task") == await count(store, "claim") == await count(store, "event") == 7


async def test_fifty_at_once_of_one_user_leave_exactly_the_users_limit(store: Store) -> None:
    accepted, codes = await tally(store, [task() for _ in range(50)], Limits(user_pending=3, system_pending=20))
    assert accepted == 3
    assert codes == {Code.USER_QUEUE_FULL: 47}
    assert await count(store, "task") == 3


async def test_a_full_user_leaves_another_alone(store: Store) -> None:
    await tally(store, [task("alice") for _ in range(5)], Limits())
    assert not (await submit(store, task("bob"), Limits())).replayed


async def test_running_tasks_do_not_count(store: Store) -> None:
    first = [(await submit(store, task(), Limits())).task_id for _ in range(2)]
    for task_id in first:
        await set_state(store, task_id, "running")
    accepted, _ = await tally(store, [task() for _ in range(5)], Limits())
    assert accepted == 3


async def test_who_is_over_both_limits_learns_of_the_own_one(store: Store) -> None:
    limits = Limits(user_pending=2, system_pending=2)
    await tally(store, [task(), task()], limits)
    with pytest.raises(Refused) as refused:
        await submit(store, task(), limits)
    assert refused.value.code == Code.USER_QUEUE_FULL
    assert dict(refused.value.detail) == {"queued_count": 2, "limit": 2}


async def test_a_freed_place_is_given_at_once(store: Store) -> None:
    limits = Limits(user_pending=1)
    first = await submit(store, task(), limits)
    with pytest.raises(Refused):
        await submit(store, task(), limits)
    await set_state(store, first.task_id, "failed")
    assert not (await submit(store, task(), limits)).replayed


async def test_a_repeat_gets_the_first_task_even_when_all_is_full(store: Store) -> None:
    limits = Limits(user_pending=1, system_pending=1)
    first = await submit(store, task(idempotency_key="k"), limits)
    assert await submit(store, task(idempotency_key="k"), limits) == Accepted(first.task_id, replayed=True)
    await set_state(store, first.task_id, "done")
    assert await submit(store, task(idempotency_key="k"), limits) == Accepted(first.task_id, replayed=True)
    assert await count(store, "task") == 1


async def test_repeats_at_the_same_time_make_one_task(store: Store) -> None:
    results = await asyncio.gather(*(submit(store, task(idempotency_key="k"), Limits()) for _ in range(20)))
    assert len({result.task_id for result in results}) == 1
    assert [result.replayed for result in results].count(False) == 1
    assert await count(store, "task") == 1


async def test_a_repeat_is_the_same_whatever_the_order_of_its_keys(store: Store) -> None:
    first = await submit(store, task(payload={"a": 1, "b": 2}, idempotency_key="k"), Limits())
    again = await submit(store, task(payload={"b": 2, "a": 1}, idempotency_key="k"), Limits())
    assert again == Accepted(first.task_id, replayed=True)


@pytest.mark.parametrize("other", [{"payload": 2}, {"type": "other"}, {"queue": "q2"}, {"priority": 1}, {"cost": 2}])
async def test_the_same_key_with_another_request_is_a_conflict(store: Store, other: dict[str, Any]) -> None:
    await submit(store, task(idempotency_key="k"), WIDE)
    with pytest.raises(Refused) as refused:
        await submit(store, task(idempotency_key="k", **other), WIDE)
    assert refused.value.code == Code.IDEMPOTENCY_CONFLICT
    assert await count(store, "task") == 1


async def test_a_key_belongs_to_its_user(store: Store) -> None:
    first = await submit(store, task("alice", idempotency_key="k"), Limits())
    other = await submit(store, task("bob", idempotency_key="k"), Limits())
    assert other.task_id != first.task_id
    assert not other.replayed


async def test_a_refused_task_leaves_no_row_and_no_key(store: Store) -> None:
    limits = Limits(user_pending=1)
    first = await submit(store, task(), limits)
    with pytest.raises(Refused):
        await submit(store, task(idempotency_key="k"), limits)
    assert await count(store, "idempotency") == 0
    await set_state(store, first.task_id, "done")
    assert not (await submit(store, task(idempotency_key="k"), limits)).replayed


async def test_a_batch_keeps_what_came_before_the_refusal(store: Store) -> None:
    batch = await submit_many(store, [task(payload=i) for i in range(5)], Limits(user_pending=3))
    assert len(batch.accepted) == 3
    assert batch.refusal is not None
    assert (batch.refusal.code, batch.refusal.queued, batch.refusal.limit) == (Code.USER_QUEUE_FULL, 3, 3)
    stored = await rows(
        store,
        "SELECT payload, state FROM slackwater.task t JOIN slackwater.claim c ON c.task_id = t.id ORDER BY payload",
    )
    assert [tuple(row) for row in stored] == [(0, "queued"), (1, "queued"), (2, "queued")]


async def test_a_repeated_batch_goes_on_where_it_was_refused(store: Store) -> None:
    wanted = [task(payload=i, idempotency_key=f"k/{i}") for i in range(5)]
    first = await submit_many(store, wanted, Limits(user_pending=3))
    await set_state(store, first.accepted[0].task_id, "done")
    again = await submit_many(store, wanted, Limits(user_pending=3))
    assert [a.replayed for a in again.accepted] == [True, True, True, False]
    assert again.refusal is not None
    assert await count(store, "task") == 4


async def test_bad_input_in_a_batch_stores_nothing(store: Store) -> None:
    with pytest.raises(InvalidInput) as refused:
        await submit_many(store, [task(), task(payload={"x": "\x00"})], Limits())
    assert refused.value.field == "tasks[1].payload.x"
    assert await count(store, "task") == 0


async def test_a_queue_whose_pools_are_all_closed_refuses(store: Store) -> None:
    async def pool(uid: str, admission: str) -> None:
        async with store.transaction() as connection:
            await connection.execute(
                text("INSERT INTO slackwater.pool (uid, name, admission, queues) VALUES (:uid, :uid, :a, '{default}')"),
                {"uid": uid, "a": admission},
            )

    await pool("p1", "Closed")
    with pytest.raises(Refused) as refused:
        await submit(store, task(), Limits())
    assert refused.value.code == Code.QUEUE_CLOSED
    await pool("p2", "HoldAndDrain")
    assert not (await submit(store, task(), Limits())).replayed
    assert not (await submit(store, task(queue="served-by-none"), Limits())).replayed


async def test_a_heavy_user_does_not_stand_before_anothers_first(store: Store) -> None:
    for _ in range(3):
        await submit_many(store, [task("heavy")] * 30, WIDE)
    await submit(store, task("light"), WIDE)
    order = await rows(store, "SELECT user_id FROM slackwater.claim ORDER BY order_key, task_id LIMIT 2")
    assert "light" in {row.user_id for row in order}


async def test_a_scheduled_task_is_claimable_from_its_instant(store: Store) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    accepted = await submit(store, task(run_at=later), Limits())
    row = await one(store, "SELECT claimable_from FROM slackwater.claim WHERE task_id = :id", id=accepted.task_id)
    assert row.claimable_from == later


async def test_one_notification_wakes_for_a_whole_batch(store: Store, postgres_url: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute("LISTEN slackwater_wake")
        await submit_many(store, [task(payload=i) for i in range(5)], WIDE)
        told = [n.payload async for n in connection.notifies(timeout=5, stop_after=1)]
        told += [n.payload async for n in connection.notifies(timeout=0.1)]
    assert told == ["default"]


async def test_without_given_limits_the_stored_policy_decides_at_once(store: Store) -> None:
    await write_policy(store, Policy(user_pending_limit=1), who="test")
    await submit(store, task())
    with pytest.raises(Refused) as refused:
        await submit(store, task())
    assert dict(refused.value.detail) == {"queued_count": 1, "limit": 1}
    await write_policy(store, Policy(user_pending_limit=2), who="test")
    assert not (await submit(store, task())).replayed


async def test_an_unreadable_policy_admits_nothing(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.execute(text("UPDATE slackwater.policy SET document = '{}'"))
    with pytest.raises(PolicyUnreadable):
        await submit(store, task())
    assert await count(store, "task") == 0


async def test_weights_come_from_the_policy(store: Store) -> None:
    await write_policy(store, Policy(user_pending_limit=9, weights={"alice": 2.0}), who="test")
    await submit_many(store, [task("alice")] * 3)
    await submit_many(store, [task("bob")] * 3)
    keys = await rows(store, "SELECT user_id, order_key FROM slackwater.claim ORDER BY user_id, order_key")
    assert [row.order_key for row in keys] == [0, 0.5, 1, 0, 1, 2]
