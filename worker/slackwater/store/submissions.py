"""Submissions to providers. Rule: one key per submission, and nothing new while an older one is open (rule 11).

The intent, with the whole request, is stored (fenced) before the provider is called; reference and outcome are
write-once and stored whoever holds the lease, since they are facts about the provider. Acting on them is fenced.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Row

from slackwater.claim import Claim, Submission, submission_key
from slackwater.limits import check_json, check_payload
from slackwater.store import Store
from slackwater.store.fence import fenced
from slackwater.store.sql import INSTANT, as_json, sql

REQUEST_BYTES = 1024 * 1024

_COLUMNS = "task_id, name, n, key, provider, request, reference, outcome"
_LATEST = sql(
    "SELECT {columns} FROM {s}.submission WHERE task_id = :task_id AND name = :name ORDER BY n DESC LIMIT 1",
    {"columns": _COLUMNS},
)
_ALL = sql(
    "SELECT {columns} FROM {s}.submission WHERE task_id = :task_id ORDER BY intent_at, name, n", {"columns": _COLUMNS}
)
_INTEND = sql(
    """
    INSERT INTO {s}.submission (task_id, name, n, key, provider, request, epoch)
    VALUES (:task_id, :name, :n, :key, :provider, CAST(:request AS jsonb), :epoch)
    RETURNING {columns}
    """,
    {"columns": _COLUMNS},
)
_REFERENCE = sql("""
    UPDATE {s}.submission SET reference = coalesce(reference, :reference),
        reference_at = coalesce(reference_at, clock_timestamp())
    WHERE key = :key RETURNING reference
""")
_OUTCOME = sql(
    """
    UPDATE {s}.submission SET outcome = coalesce(outcome, CAST(:outcome AS jsonb)),
        resolved_at = coalesce(resolved_at, clock_timestamp())
    WHERE key = :key RETURNING {columns}
    """,
    {"columns": _COLUMNS},
)

# The claim's lock puts it before or after whatever ends the task, so that a refund either knows of it or comes first.
_LOCK_TASK = sql("""
    SELECT k.task_id FROM {s}.claim k WHERE k.task_id = (SELECT task_id FROM {s}.submission WHERE key = :key) FOR UPDATE
""")
_OPEN = sql("SELECT intent_at FROM {s}.submission WHERE key = :key AND outcome IS NULL")
_LATE_COST = sql(
    """
    UPDATE {s}.settlement SET late_cost = reserved
    WHERE task_id = :task_id AND refunded IS NOT NULL AND late_cost IS NULL
      AND n = (SELECT max(n) FROM {s}.settlement WHERE task_id = :task_id AND reserved_at <= :intent_at)
    """,
    intent_at=INSTANT,
)


async def intend(store: Store, claim: Claim, name: str, provider: str, request: Any, *, after: int = 0) -> Submission:
    """The submission of that name: the one on record, or a new intent (`created`) under its key.

    On record wins, with the request stored then. `after`: the number of a resolved one that this call follows on; a
    next number is opened only then, so an open one always comes back itself.
    """
    body = check_json(request, field="request", max_bytes=REQUEST_BYTES)
    async with fenced(store, claim) as (connection, _):
        latest = (await connection.execute(_LATEST, {"task_id": claim.task_id, "name": name})).one_or_none()
        if latest is not None and (latest.n > after or latest.outcome is None):
            return _submission(latest)
        n = 1 if latest is None else latest.n + 1
        values = {
            "task_id": claim.task_id,
            "name": name,
            "n": n,
            "key": submission_key(claim.task_id, name, n),
            "provider": provider,
            "request": body,
            "epoch": claim.epoch,
        }
        return _submission((await connection.execute(_INTEND, values)).one(), created=True)


async def store_reference(store: Store, key: str, reference: str) -> str | None:
    """Store the provider's reference, once, whoever holds the lease. Returns the one on record; None: no such key."""
    async with store.transaction() as connection:
        kept: str | None = (
            await connection.execute(_REFERENCE, {"key": key, "reference": reference})
        ).scalar_one_or_none()
    return kept


async def resolve(store: Store, claim: Claim, name: str, n: int, outcome: Any) -> Submission:
    """Store the outcome that the provider has on record under this key, and act on it: fenced, write-once."""
    body = _outcome(outcome)
    async with fenced(store, claim) as (connection, _):
        values = {"key": submission_key(claim.task_id, name, n), "outcome": body}
        return _submission((await connection.execute(_OUTCOME, values)).one())


async def store_outcome(store: Store, key: str, outcome: Any) -> Submission | None:
    """A late result: stored write-once without a claim, acted on by nobody here. None: no such key.

    If what was reserved for it has been refunded, it is recorded as cost: the provider was paid, the user is not asked.
    """
    body = _outcome(outcome)
    async with store.transaction() as connection:
        await connection.execute(_LOCK_TASK, {"key": key})
        new = (await connection.execute(_OPEN, {"key": key})).one_or_none()
        row = (await connection.execute(_OUTCOME, {"key": key, "outcome": body})).one_or_none()
        if row is None:
            return None
        if new is not None:
            await connection.execute(_LATE_COST, {"task_id": row.task_id, "intent_at": new.intent_at})
    return _submission(row)


async def submissions(store: Store, task_id: UUID) -> list[Submission]:
    """All submissions of a task in the order of their intents."""
    async with store.transaction() as connection:
        return [_submission(row) for row in await connection.execute(_ALL, {"task_id": task_id})]


def _outcome(outcome: Any) -> str:
    if outcome is None:
        raise ValueError("an outcome is what the provider has on record, not None")
    check_payload(outcome, "outcome")
    return as_json(outcome)


def _submission(row: Row[Any], *, created: bool = False) -> Submission:
    return Submission(
        task_id=row.task_id,
        name=row.name,
        n=row.n,
        key=row.key,
        provider=row.provider,
        request=row.request,
        reference=row.reference,
        outcome=row.outcome,
        created=created,
    )
