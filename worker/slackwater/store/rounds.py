"""Whose turn a sweep is, and the database's timeline. Rule: one UPDATE decides, by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.store import TIMELINE, Store
from slackwater.store.sql import sql

# `last` ahead of the clock: it went back, and waiting till it catches up would stop the sweeps. The first run ever
# (-infinity) is no gap.
_DUE = sql("""
    UPDATE {s}.sweep SET
        quiet_until = CASE
            WHEN kind = 'expired' AND last <> '-infinity'
                 AND (last < clock_timestamp() - make_interval(secs => :gap)
                      OR last > clock_timestamp() + make_interval(secs => :step))
            THEN clock_timestamp() + make_interval(secs => :quiet) ELSE quiet_until END,
        last = clock_timestamp()
    WHERE kind = :kind AND (last < clock_timestamp() - make_interval(secs => :interval)
                            OR last > clock_timestamp() + make_interval(secs => :step))
    RETURNING coalesce(quiet_until > clock_timestamp(), false) AS quiet
""")
_TIMELINE = sql(
    "UPDATE {s}.timeline SET name = {timeline}, changed_at = clock_timestamp() WHERE name <> {timeline} RETURNING name",
    {"timeline": TIMELINE},
)
STEP_SECONDS = 1.0


@dataclass(frozen=True)
class Round:
    """This caller runs the round. `quiet`: nothing is freed without a witness."""

    quiet: bool


async def due(store: Store, kind: str, interval_seconds: float) -> Round | None:
    """Take the kind's turn if it is due; None: it is not, or somebody else has it."""
    c = store.constants
    values = {
        "kind": kind,
        "interval": interval_seconds,
        "gap": c.expiry_gap_seconds,
        "quiet": c.expiry_quiet_seconds,
        "step": STEP_SECONDS,
    }
    async with store.transaction() as connection:
        row = (await connection.execute(_DUE, values)).one_or_none()
    return None if row is None else Round(row.quiet)


async def watch_timeline(store: Store) -> bool:
    """Note a timeline other than the one on record; True: it changed just now. Claims compare both themselves."""
    async with store.transaction() as connection:
        return (await connection.execute(_TIMELINE)).one_or_none() is not None
