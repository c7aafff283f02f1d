"""Cordons, one per pod. Rule: a cordon is final, and nothing is condemned that a claim still runs in (rule 7).

Claims share-lock the pod's row, so that after a cordon commits the pod's claims can only fall. `condemn` is the only
way to a delete: in a transaction later than the cordon's own, one UPDATE finds no running claim (expired ones included)
of any worker of that pod and marks the cordon; nothing lifts a condemned one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.schema import POOL_CHANNEL
from slackwater.store import Store
from slackwater.store.sql import sql

Origin = Literal["operator", "worker"]
"""`operator`: may be called off. `worker`: final (SIGTERM, stubborn code, or the pod object is gone)."""


@dataclass(frozen=True)
class CordonView:
    """A pod's cordon. `since` None: open. Instants are the database's."""

    pod_uid: str
    sequence: int
    origin: Origin | None
    cause: str | None
    since: datetime | None
    deadline: datetime | None
    condemned: bool

    @property
    def cordoned(self) -> bool:
        return self.since is not None


_VIEW = "pod_uid, sequence, origin, cause, since, deadline, condemned_at IS NOT NULL AS condemned"

LOCK_CORDON = sql("SELECT {view} FROM {s}.cordon WHERE pod_uid = :pod_uid FOR UPDATE", {"view": _VIEW})
_NOTIFY_POOL = sql(
    "SELECT pg_notify(:channel, pool_uid) FROM (SELECT DISTINCT pool_uid FROM {s}.worker WHERE pod_uid = :pod_uid) p"
)
_CORDON = sql(
    """
    INSERT INTO {s}.cordon AS c (pod_uid, origin, cause, since, deadline)
    VALUES (:pod_uid, :origin, :cause, clock_timestamp(),
            clock_timestamp() + make_interval(secs => CAST(:deadline_seconds AS float8)))
    ON CONFLICT (pod_uid) DO UPDATE SET
        sequence = CASE WHEN c.since IS NULL OR excluded.deadline < coalesce(c.deadline, 'infinity')
                   THEN nextval('{s}.cordon_sequence') ELSE c.sequence END,
        origin = CASE WHEN c.since IS NULL OR excluded.origin = 'worker' THEN excluded.origin ELSE c.origin END,
        cause = CASE WHEN c.since IS NULL THEN excluded.cause ELSE c.cause END,
        deadline = CASE WHEN c.since IS NULL THEN excluded.deadline ELSE least(c.deadline, excluded.deadline) END,
        since = coalesce(c.since, excluded.since)
    RETURNING {view}
""",
    {"view": _VIEW},
)
_CALL_OFF = sql("""
    UPDATE {s}.cordon
    SET origin = NULL, cause = NULL, since = NULL, deadline = NULL, sequence = nextval('{s}.cordon_sequence')
    WHERE pod_uid = :pod_uid AND sequence = :sequence AND origin = 'operator'
      AND since IS NOT NULL AND condemned_at IS NULL
    RETURNING pod_uid
""")
_CONDEMN = sql("""
    UPDATE {s}.cordon SET condemned_at = coalesce(condemned_at, clock_timestamp())
    WHERE pod_uid = :pod_uid AND since IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM {s}.claim k JOIN {s}.worker w ON w.id = k.worker_id
          WHERE w.pod_uid = :pod_uid AND k.state = 'running')
    RETURNING pod_uid
""")


async def cordon(
    store: Store, pod_uid: str, *, origin: Origin, cause: str, deadline_seconds: float | None
) -> CordonView:
    """Cordon a pod; makes the row when missing. The first writer decides since and cause; origin `worker` makes it
    final; the deadline is the earliest of all, `deadline_seconds` from now (None: none). May be repeated.

    Returns when claims in flight of that pod have ended: afterwards its claims can only fall.
    """
    async with store.transaction() as connection:
        return await _cordon(connection, pod_uid, origin, cause, deadline_seconds)


async def call_off(store: Store, pod_uid: str, sequence: int) -> bool:
    """Lift an operator's cordon of that sequence. False: it is another one, final, condemned or not there."""
    async with store.transaction() as connection:
        values = {"pod_uid": pod_uid, "sequence": sequence}
        lifted = (await connection.execute(_CALL_OFF, values)).one_or_none() is not None
        if lifted:
            await connection.execute(_NOTIFY_POOL, {"channel": POOL_CHANNEL, "pod_uid": pod_uid})
    return lifted


async def condemn(store: Store, pod_uid: str) -> bool:
    """Mark a cordoned pod condemned if no worker of it has a running claim: only then may it be deleted.

    True also when it was condemned before. Call it after `cordon` returned: it is a transaction of its own. The row is
    locked by a statement before the one that counts: a count whose snapshot predates its wait for the row could have
    missed a claim made under a call-off and a new cordon meanwhile.
    """
    async with store.transaction() as connection:
        await connection.execute(LOCK_CORDON, {"pod_uid": pod_uid})
        return (await connection.execute(_CONDEMN, {"pod_uid": pod_uid})).one_or_none() is not None


async def vanish(store: Store, pod_uids: Iterable[str]) -> None:
    """Cordon, finally and with cause Gone, pods whose object is gone. Their workers finish under live leases only."""
    for pod_uid in sorted(set(pod_uids)):
        async with store.transaction() as connection:
            await _cordon(connection, pod_uid, "worker", "Gone", None)


async def _cordon(
    connection: AsyncConnection, pod_uid: str, origin: Origin, cause: str, deadline_seconds: float | None
) -> CordonView:
    values = {"pod_uid": pod_uid, "origin": origin, "cause": cause, "deadline_seconds": deadline_seconds}
    view = cordon_view((await connection.execute(_CORDON, values)).one())
    await connection.execute(_NOTIFY_POOL, {"channel": POOL_CHANNEL, "pod_uid": pod_uid})
    return view


def cordon_view(row: Row[Any]) -> CordonView:
    return CordonView(row.pod_uid, row.sequence, row.origin, row.cause, row.since, row.deadline, row.condemned)
