"""Retention: what is removed, and when. Rule: only what has ended and what nobody can need, a few rows a transaction.

A task goes with its claim, events, submissions and settlements. Events go earlier, all but a task's last: it says how
the task ended and which number comes next; a stream that asks for the others gets a gap event. A worker's row and
heartbeat stay while any claim names it. A cordon stays while a worker of its pod is on record: it is final (rule 7).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import TextClause

from slackwater.ids import new_id
from slackwater.settings import RetentionSettings
from slackwater.store import Store
from slackwater.store.sql import UUIDS, sql

BATCH: Final = 500
_DAY: Final = 86_400.0
_FIRST: Final = UUID(int=0)

_ENDED = """k.state IN ('done', 'failed', 'cancelled') AND t.finished_at < clock_timestamp() - {age}"""
# Ids are ordered by time, so the oldest come first and the walk ends at the first id that is too young.
_WALK = sql(
    """
    SELECT t.id, {ended} AS due FROM {s}.task t JOIN {s}.claim k ON k.task_id = t.id
    WHERE t.id > :after AND t.id < :bound ORDER BY t.id LIMIT :batch
    """,
    {"ended": _ENDED.replace("{age}", "make_interval(secs => :age)")},
)
_TASKS = sql(
    """
    DELETE FROM {s}.task t USING {s}.claim k
    WHERE t.id = ANY(:ids) AND k.task_id = t.id AND {ended}
    """,
    {"ended": _ENDED.replace("{age}", "make_interval(secs => :age)")},
    ids=UUIDS,
)
_RESULTS = sql(
    """
    UPDATE {s}.task t SET result = NULL, checkpoint = NULL FROM {s}.claim k
    WHERE t.id = ANY(:ids) AND k.task_id = t.id AND {ended} AND (t.result IS NOT NULL OR t.checkpoint IS NOT NULL)
    """,
    {"ended": _ENDED.replace("{age}", "make_interval(secs => :age)")},
    ids=UUIDS,
)
_EVENTS = sql(
    """
    DELETE FROM {s}.event e USING {s}.task t, {s}.claim k
    WHERE e.task_id = ANY(:ids) AND t.id = e.task_id AND k.task_id = t.id AND {ended}
      AND EXISTS (SELECT FROM {s}.event l WHERE l.task_id = e.task_id AND l.seq > e.seq)
    """,
    {"ended": _ENDED.replace("{age}", "make_interval(secs => :age)")},
    ids=UUIDS,
)
_OUTBOX = sql("""
    DELETE FROM {s}.outbox WHERE id IN (
        SELECT o.id FROM {s}.outbox o
        WHERE o.delivered_at < clock_timestamp() - make_interval(secs => :age)
          AND NOT EXISTS (SELECT FROM {s}.delivery d WHERE d.outbox_id = o.id AND d.delivered_at IS NULL
                          AND (d.dead_at IS NULL OR d.dead_at > clock_timestamp() - make_interval(secs => :dead_age)))
        ORDER BY o.id LIMIT :batch FOR UPDATE SKIP LOCKED)
""")
_AUDIT = sql("""
    DELETE FROM {s}.audit WHERE id IN (
        SELECT id FROM {s}.audit WHERE at < clock_timestamp() - make_interval(secs => :age) ORDER BY id LIMIT :batch)
""")
# A key protects as long as its task runs, however old it is.
_KEYS = sql("""
    DELETE FROM {s}.idempotency i WHERE (i.user_id, i.key) IN (
        SELECT j.user_id, j.key FROM {s}.idempotency j LEFT JOIN {s}.claim k ON k.task_id = j.task_id
        WHERE j.created_at < clock_timestamp() - make_interval(secs => :age)
          AND (k.state IS NULL OR k.state IN ('done', 'failed', 'cancelled'))
        LIMIT :batch)
""")
_WORKERS = sql("""
    WITH old AS (
        SELECT w.id FROM {s}.worker w LEFT JOIN {s}.worker_heartbeat b ON b.worker_id = w.id
        WHERE greatest(coalesce(w.ended_at, b.seen_at, w.registered_at), b.seen_at)
              < clock_timestamp() - make_interval(secs => :age)
          AND NOT EXISTS (SELECT FROM {s}.claim k WHERE k.worker_id = w.id)
        LIMIT :batch FOR UPDATE OF w SKIP LOCKED
    ), beats AS (
        DELETE FROM {s}.worker_heartbeat b USING old WHERE b.worker_id = old.id
    )
    DELETE FROM {s}.worker w USING old WHERE w.id = old.id
""")
_CORDONS = sql("""
    DELETE FROM {s}.cordon WHERE pod_uid IN (
        SELECT c.pod_uid FROM {s}.cordon c
        WHERE greatest(c.created_at, c.since, c.condemned_at) < clock_timestamp() - make_interval(secs => :age)
          AND NOT EXISTS (SELECT FROM {s}.worker w WHERE w.pod_uid = c.pod_uid)
        LIMIT :batch FOR UPDATE OF c SKIP LOCKED)
""")


@dataclass
class Pruned:
    """Rows removed, by kind; of results the tasks that were relieved of theirs."""

    tasks: int = 0
    results: int = 0
    events: int = 0
    outbox: int = 0
    audit: int = 0
    keys: int = 0
    workers: int = 0
    cordons: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


async def prune(store: Store, keep: RetentionSettings) -> Pruned:
    """Remove what is older than `keep` says. May be interrupted and repeated, also by several at once."""
    done = Pruned()
    done.tasks = await _walk(store, _TASKS, keep.tasks_days * _DAY)
    done.results = await _walk(store, _RESULTS, keep.results_days * _DAY)
    done.events = await _walk(store, _EVENTS, keep.events_hours * 3600.0)
    dead_age = {"dead_age": keep.dead_days * _DAY}
    done.outbox = await _repeat(store, _OUTBOX, keep.outbox_days * _DAY, **dead_age)
    done.audit = await _repeat(store, _AUDIT, keep.audit_days * _DAY)
    done.keys = await _repeat(store, _KEYS, keep.keys_days * _DAY)
    done.workers = await _repeat(store, _WORKERS, keep.workers_days * _DAY)
    done.cordons = await _repeat(store, _CORDONS, keep.workers_days * _DAY)
    return done


async def _walk(store: Store, statement: TextClause, age: float) -> int:
    """Over all tasks that were made before `age` ago, from the oldest; each batch in transactions of its own."""
    before = await store.now() - timedelta(seconds=age)
    bound, after, changed = new_id(max(0, int(before.timestamp() * 1000))), _FIRST, 0
    while True:
        values: dict[str, Any] = {"after": after, "bound": bound, "batch": BATCH, "age": age}
        async with store.transaction() as connection:
            rows = (await connection.execute(_WALK, values)).all()
        if not rows:
            return changed
        after = rows[-1].id
        if due := [row.id for row in rows if row.due]:
            async with store.transaction() as connection:
                changed += (await connection.execute(statement, {"ids": due, "age": age})).rowcount


async def _repeat(store: Store, statement: TextClause, age: float, **more: float) -> int:
    removed = 0
    while True:
        async with store.transaction() as connection:
            count = (await connection.execute(statement, {"age": age, "batch": BATCH, **more})).rowcount
        removed += count
        if count < BATCH:
            return removed
