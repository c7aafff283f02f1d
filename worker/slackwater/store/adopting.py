"""Results that come when nobody runs the task. Rule: a fact about the provider is stored once, whoever
brings it; what it means for state and money is decided under the claim's lock.

A late result of a task that is still going on waits for its next run, which reattaches to it. Of one that is `unknown`
an administrator adopts it (`adopt`: charged, result attached), once. After a refund it is recorded as cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from slackwater.claim import Submission, TaskState
from slackwater.errors import InvalidInput
from slackwater.limits import check_result
from slackwater.store import Store, events
from slackwater.store.admin import StateStands, audit
from slackwater.store.settling import Verdict, facts, settle
from slackwater.store.sql import as_json, sql
from slackwater.store.submissions import store_outcome

_LOCK = sql("SELECT state, epoch FROM {s}.claim WHERE task_id = :task_id FOR UPDATE")
_LATEST = sql("""
    SELECT outcome FROM {s}.submission WHERE task_id = :task_id AND outcome IS NOT NULL
    ORDER BY resolved_at DESC, n DESC LIMIT 1
""")
_RESOLVE = sql("""
    UPDATE {s}.submission SET outcome = CAST(:outcome AS jsonb), resolved_at = clock_timestamp()
    WHERE task_id = :task_id AND outcome IS NULL
""")

_UNKNOWN = sql("""
    SELECT count(*) AS waiting,
           CAST(coalesce(max(extract(epoch FROM clock_timestamp() - e.since)), 0) AS float8) AS oldest
    FROM {s}.claim k LEFT JOIN LATERAL (
        SELECT max(created_at) AS since FROM {s}.event WHERE task_id = k.task_id AND kind = 'unknown') e ON true
    WHERE k.state = 'unknown'
""")


@dataclass(frozen=True, slots=True)
class Unknown:
    count: int
    oldest_seconds: float
    """0 if there is none."""


async def adopt(store: Store, task_id: UUID, *, result: Any = None, who: str, reason: str = "") -> bool:
    """End an `unknown` task as done: charged, with `result`, or with the outcome that is on record if it is None.

    False: no such task. Raises StateStands unless it is unknown, InvalidInput if there is no result at all.
    """
    if result is not None:
        check_result(result)
    async with store.transaction() as connection:
        row = (await connection.execute(_LOCK, {"task_id": task_id})).one_or_none()
        if row is None:
            return False
        if row.state != TaskState.UNKNOWN:
            raise StateStands(TaskState(row.state))
        known = await facts(connection, task_id)
        if result is None:
            result = (await connection.execute(_LATEST, {"task_id": task_id})).scalar_one_or_none()
        if result is None:
            raise InvalidInput("result", None, "is needed: no outcome of a provider is on record")
        # Whatever was open is answered for now: by whom is in the outcome and in the audit.
        outcome = as_json({"adopted_by": who, "reason": reason})
        await connection.execute(_RESOLVE, {"task_id": task_id, "outcome": outcome})
        await settle(connection, task_id, row.epoch, Verdict(TaskState.DONE, result=result), known)
        await events.add_foreign(connection, task_id, epoch=row.epoch, kind=TaskState.DONE, data={"adopted": True})
        await audit(connection, who, "adopt", task_id, {"reason": reason})
    return True


async def late_result(store: Store, key: str, outcome: Any, *, who: str) -> Submission | None:
    """An administrator, or a provider's callback, brings what a submission came to. None: no such key.

    The one on record stands, whoever comes later; the answer shows it.
    """
    found = await store_outcome(store, key, outcome)
    if found is not None:
        async with store.transaction() as connection:
            detail = {"submission": key, "recorded": found.outcome == outcome}
            await audit(connection, who, "late result", found.task_id, detail)
    return found


async def unknown_tasks(store: Store) -> Unknown:
    """How many tasks wait for an administrator because a provider's outcome is not known, and for how long."""
    async with store.transaction() as connection:
        row = (await connection.execute(_UNKNOWN)).one()
    return Unknown(row.waiting, row.oldest)
