"""Retention: each kind by its own age, and nothing that somebody may still need."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from slackwater.claim import Done, Ground
from slackwater.ids import new_id
from slackwater.settings import RetentionSettings
from slackwater.store import Store, outbox, reading, recovery, retention, submissions, webhooks, writing
from slackwater.store.admission import Submit, submit
from slackwater.store.retention import Pruned, prune
from tests.integration.world import World

KEEP = RetentionSettings()
DAYS = {
    "task": "created_at = created_at - {d}, finished_at = finished_at - {d}",
    "event": "created_at = created_at - {d}",
    "outbox": "created_at = created_at - {d}, delivered_at = delivered_at - {d}",
    "delivery": "dead_at = dead_at - {d}",
    "audit": "at = at - {d}",
    "idempotency": "created_at = created_at - {d}",
    "worker": "registered_at = registered_at - {d}, ended_at = ended_at - {d}",
    "worker_heartbeat": "seen_at = seen_at - {d}",
    "cordon": "created_at = created_at - {d}, since = since - {d}, condemned_at = condemned_at - {d}",
}


async def age(world: World, days: float) -> None:
    """Everything on record becomes that much older, ids of tasks excepted."""
    for table, change in DAYS.items():
        await world.sql(f"UPDATE slackwater.{table} SET " + change.format(d=f"interval '{days} days'"))


async def old_task(store: Store, world: World, *, days: float, key: str | None = None) -> UUID:
    """A task whose id says that it was made then."""
    made = (await submit(store, Submit(type="t", user_id="alice", payload={}, idempotency_key=key))).task_id
    old = new_id(int((await store.now()).timestamp() * 1000 - days * 86_400_000))
    async with world.holding("SET CONSTRAINTS ALL IMMEDIATE") as connection:
        await connection.execute("SET session_replication_role = replica")
        for table, column in (
            ("task", "id"),
            ("claim", "task_id"),
            ("event", "task_id"),
            ("settlement", "task_id"),
            ("outbox", "task_id"),
            ("idempotency", "task_id"),
        ):
            await connection.execute(
                f"UPDATE slackwater.{table} SET {column} = %s WHERE {column} = %s",
                (old, made),
            )
        await connection.execute("SET session_replication_role = origin")
    return old


async def finished(store: Store, world: World, *, days: float, key: str | None = None) -> UUID:
    task = await old_task(store, world, days=days, key=key)
    claimed = await world.try_claim(task)
    assert claimed is not None
    await writing.finish(store, claimed.claim, Done({"large": "result"}))
    return task


async def test_fresh_things_and_those_that_have_not_ended_are_left_alone(store: Store, world: World) -> None:
    await world.worker()
    await finished(store, world, days=0)
    waiting = await old_task(store, world, days=400, key="k")
    running = await world.try_claim(await old_task(store, world, days=400))
    assert await prune(store, KEEP) == Pruned()
    await world.sql("UPDATE slackwater.idempotency SET created_at = created_at - interval '400 days'")
    assert await prune(store, KEEP) == Pruned(), "a key protects as long as its task has not ended"
    assert running is not None
    assert await reading.task_view(store, waiting) is not None


async def test_events_go_after_a_day_but_the_last_and_a_reader_is_told_of_the_gap(store: Store, world: World) -> None:
    await world.worker()
    task = await finished(store, world, days=2)
    await age(world, 1.1)
    assert (await prune(store, KEEP)).events == 2
    page = await reading.events_after(store, task, None, 0)
    assert page is not None
    assert [(event.seq, event.kind) for event in page.events] == [(3, "done")]
    assert not page.whole(0)
    assert (await prune(store, KEEP)).events == 0


async def test_results_go_at_their_age_and_the_task_at_its_own(store: Store, world: World) -> None:
    await world.worker()
    task = await finished(store, world, days=60, key="once")
    await age(world, 10)
    keep = RetentionSettings(results_days=7)
    done = await prune(store, keep)
    assert (done.results, done.tasks) == (1, 0)
    view = await reading.task_view(store, task)
    assert view is not None
    assert (view.state, view.result) == ("done", None)
    await age(world, 25)
    done = await prune(store, keep)
    assert (done.tasks, done.keys) == (1, 1)
    assert await reading.task_view(store, task) is None
    for table in ("claim", "event", "settlement", "submission", "idempotency"):
        assert await world.sql(f"SELECT FROM slackwater.{table}") == []


async def test_what_was_not_delivered_stays_until_it_was_given_up_for_long(store: Store, world: World) -> None:
    await webhooks.put(store, "shop", "https://example.com/", who="root")
    await old_task(store, world, days=0)
    await outbox.hand_out(store)
    await age(world, 20)
    assert (await prune(store, KEEP)).outbox == 0
    (letter,) = await outbox.take(store, "shop", limit=1, hold_seconds=1)
    await outbox.failed(store, letter, error="status 500", wait_seconds=None)
    assert (await prune(store, KEEP)).outbox == 0
    await age(world, 31)
    assert (await prune(store, KEEP)).outbox == 1
    assert await outbox.deliveries(store) == []


async def test_a_worker_stays_while_a_claim_names_it_and_its_pod_s_cordon_while_the_worker_does(
    store: Store, world: World
) -> None:
    await world.worker("w1", pod="pod1")
    await world.worker("w2", pod="pod2")
    claim = await world.running("w1")
    await age(world, 8)
    assert await prune(store, KEEP) == Pruned(workers=1, cordons=1)
    assert [row["id"] for row in await world.sql("SELECT id FROM slackwater.worker")] == ["w1"]
    assert [row["worker_id"] for row in await world.sql("SELECT worker_id FROM slackwater.worker_heartbeat")] == ["w1"]
    assert [row["pod_uid"] for row in await world.sql("SELECT pod_uid FROM slackwater.cordon")] == ["pod1"]
    await world.sql("DELETE FROM slackwater.task WHERE id = %(id)s", id=claim.task_id)
    assert await prune(store, KEEP) == Pruned(workers=1, cordons=1)


async def test_a_worker_that_beats_is_not_old_however_long_ago_it_registered(store: Store, world: World) -> None:
    await world.worker()
    await world.sql("UPDATE slackwater.worker SET registered_at = registered_at - interval '90 days'")
    assert await prune(store, KEEP) == Pruned()


async def test_the_audit_is_kept_for_a_year(store: Store, world: World) -> None:
    await webhooks.put(store, "shop", "https://example.com/", who="root")
    await age(world, 364)
    assert (await prune(store, KEEP)).audit == 0
    await age(world, 2)
    assert (await prune(store, KEEP)).audit == 1


async def test_many_rows_go_in_batches_and_several_may_prune_at_once(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    await world.worker()
    for _ in range(8):
        await finished(store, world, days=60)
    await age(world, 31)
    both = await asyncio.gather(prune(store, KEEP), prune(store, KEEP))
    assert sum(done.tasks for done in both) == 8
    assert await world.sql("SELECT FROM slackwater.task") == []


async def test_a_task_taken_away_keeps_the_worker_that_may_still_act(store: Store, world: World) -> None:
    await world.worker(declarations={"t": {"on_interrupt": "requeue"}})
    claim = await world.running()
    await submissions.intend(store, claim, "a", "stub", {})
    await recovery.take_away(store, await world.seen(claim), Ground.CANCELLED)
    await age(world, 8)
    assert (await prune(store, KEEP)).workers == 0
