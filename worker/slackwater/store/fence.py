"""The fence. Rule: every write of an execution begins with `prove`, which locks *and renews* its claim by
id + epoch + token + running. No row means `LeaseLost`: nothing of that transaction happens (rule 2).

An expired lease that nobody took away is still ours: one row lock decides who was first (rule 4). A refusal is counted
in a transaction of its own. A run's own end leaves the event with counter `OWN_END`, by which a lost commit reply is
resolved: whoever repeats the end finds it and has succeeded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.claim import Claim
from slackwater.errors import LeaseLost, StoreUnavailable
from slackwater.store import Store
from slackwater.store.events import OWN_END
from slackwater.store.sql import sql

STALE_WRITES_REFUSED = "stale_writes_refused"

_PROVE = sql("""
    UPDATE {s}.claim SET lease_until = clock_timestamp() + make_interval(secs => :lease)
    WHERE task_id = :task_id AND epoch = :epoch AND token = :token AND state = 'running'
    RETURNING lease_until, queue, type, user_id
""")
_RENEW = sql("""
    UPDATE {s}.claim
    SET lease_until = clock_timestamp() + make_interval(secs => :lease),
        active_at = CASE WHEN :evidence THEN clock_timestamp() ELSE active_at END
    WHERE task_id = :task_id AND epoch = :epoch AND token = :token AND state = 'running'
    RETURNING lease_until
""")
_OWN_END = sql("""
    SELECT kind FROM {s}.event WHERE task_id = :task_id AND epoch = :epoch AND counter = :counter
""")
_COUNT = sql("""
    INSERT INTO {s}.counter (pool_uid, name, value)
    VALUES (coalesce((SELECT pool_uid FROM {s}.worker WHERE id = :worker_id), ''), :name, :by)
    ON CONFLICT (pool_uid, name) DO UPDATE SET value = counter.value + excluded.value
""")


@dataclass(frozen=True)
class Proof:
    """What the fence returned while it locked the claim's row."""

    lease_until: datetime
    queue: str
    type: str
    user_id: str


async def prove(connection: AsyncConnection, store: Store, claim: Claim) -> Proof:
    """Lock and renew the claim; the first statement of every fenced write. Raises LeaseLost when it doesn't stand."""
    found = (await connection.execute(_PROVE, _named(store, claim))).one_or_none()
    if found is None:
        raise LeaseLost(claim)
    return Proof(found.lease_until, found.queue, found.type, found.user_id)


@asynccontextmanager
async def fenced(store: Store, claim: Claim) -> AsyncIterator[tuple[AsyncConnection, Proof]]:
    """A transaction that has proven its claim. Raises LeaseLost, counted, and StoreUnavailable."""
    try:
        async with store.transaction() as connection:
            yield connection, await prove(connection, store, claim)
    except LeaseLost:
        await count(store, claim.worker_id, STALE_WRITES_REFUSED)
        raise


async def renew(store: Store, claim: Claim, *, evidence: bool) -> datetime:
    """Renew the lease, and `active_at` if there is new evidence of activity; returns the new lease_until.

    Raises LeaseLost (the statement ran and found no such claim; not counted, nothing stale was written) and
    StoreUnavailable (no answer: the lease stands as it was, or longer).
    """
    async with store.transaction() as connection:
        values = _named(store, claim) | {"evidence": evidence}
        lease_until: datetime | None = (await connection.execute(_RENEW, values)).scalar_one_or_none()
    if lease_until is None:
        raise LeaseLost(claim)
    return lease_until


async def own_end(connection: AsyncConnection, claim: Claim) -> str | None:
    """The kind of event with which this very run ended itself, or None: resolves a commit whose reply was lost."""
    values = {"task_id": claim.task_id, "epoch": claim.epoch, "counter": OWN_END}
    kind: str | None = (await connection.execute(_OWN_END, values)).scalar_one_or_none()
    return kind


async def count(store: Store, worker_id: str, name: str, by: int = 1) -> None:
    """Add to a counter of the worker's pool in a transaction of its own; best effort."""
    with suppress(StoreUnavailable):
        async with store.transaction() as connection:
            await connection.execute(_COUNT, {"worker_id": worker_id, "name": name, "by": by})


async def count_within(connection: AsyncConnection, worker_id: str, name: str, by: int = 1) -> None:
    """The same inside a transaction; its last statement, since the counter's row is hot."""
    await connection.execute(_COUNT, {"worker_id": worker_id, "name": name, "by": by})


def _named(store: Store, claim: Claim) -> dict[str, Any]:
    return {
        "task_id": claim.task_id,
        "epoch": claim.epoch,
        "token": claim.token,
        "lease": store.constants.lease_seconds,
    }


__all__ = ["STALE_WRITES_REFUSED", "Proof", "count", "count_within", "fenced", "own_end", "prove", "renew"]
