"""Sweeps: what heals without anybody asking. Rule: whoever hits the kind's row runs the round; others do nothing.

`UPDATE … SET last = now WHERE last < now − interval RETURNING` picks one of all operators, workers and gateways. A
round takes one task per transaction, each by its own premise, so several sweepers at once, or a slow one, do no harm,
and a fault with one task keeps no other from being swept. If the expiry round comes more than 15 s late, or the clock
went back, leases may have run out only because nobody could renew: for 60 s nothing is freed without a witness.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from slackwater.activity import Activity, Signals, silent_for
from slackwater.claim import UNDECLARED, Declaration, Ground, RunningClaim
from slackwater.errors import SlotsUnavailable
from slackwater.settings import Constants
from slackwater.slots import Lost, Slots
from slackwater.store import Store, generation, pending
from slackwater.store.recovery import declarations, give_back, running_claims, take_away
from slackwater.store.rounds import due, watch_timeline

_log = logging.getLogger(__name__)


class SweepKind(StrEnum):
    EXPIRED = "expired"
    TOUCH = "touch"
    STALE = "stale"
    ORPHANS = "orphans"


ALL: Final = tuple(SweepKind)
FED_STALE_SECONDS: Final = 1800.0


@dataclass
class SweepReport:
    """What the rounds that were due did. `errors`: what failed and will be tried again in the next round."""

    ran: list[SweepKind] = field(default_factory=list)
    quiet: bool = False
    expired: int = 0
    stale: int = 0
    overrun: int = 0
    """Past their hard time-out."""
    timed_out: int = 0
    slots_released: int = 0
    slots_missing: int = 0
    restored: generation.Restored | None = None
    errors: list[str] = field(default_factory=list)


async def run_due(
    store: Store, slots: Slots, *, kinds: Collection[SweepKind] = ALL, activity: Activity | None = None
) -> SweepReport:
    """Run every kind of `kinds` that is due, and that nobody else got. Raises StoreUnavailable only from the asking.

    Call it every few seconds, and at a process's start.
    """
    report = SweepReport()
    for kind in kinds:
        round_ = await due(store, kind.value, _interval(kind, store.constants))
        if round_ is None:
            continue
        report.ran.append(kind)
        async with _kept(report, f"the {kind} round"):
            match kind:
                case SweepKind.EXPIRED:
                    report.quiet = round_.quiet
                    await _expired(store, slots, report)
                case SweepKind.TOUCH:
                    await touch(store, slots, report)
                case SweepKind.STALE:
                    await _stale(store, activity or Activity(slots.redis, constants=store.constants), report)
                case SweepKind.ORPHANS:
                    await _orphans(store, slots, report)
                case _:
                    assert_never(kind)
    return report


async def touch(store: Store, slots: Slots, report: SweepReport) -> None:
    """Refresh the slots' marker and extend the members of all running claims; restore them if they are lost."""
    touched = await generation.touch(store, slots)
    if isinstance(touched, Lost):
        _log.warning("slots are lost (%s)", touched.reason)
        report.restored = await generation.restore(store, slots)
    else:
        report.slots_missing = touched.missing


async def _expired(store: Store, slots: Slots, report: SweepReport) -> None:
    if await watch_timeline(store):
        _log.warning("the database writes another timeline: claiming pauses for one lease")
    if report.quiet:
        return
    for seen in await running_claims(store, expired=True):
        async with _kept(report, f"task {seen.task_id}"):
            if await take_away(store, seen, Ground.EXPIRED):
                report.expired += 1
                # The lease is over, so the execution acts no more: task and slots are repaired together.
                report.slots_released += await give_back(store, slots, seen)


async def _stale(store: Store, activity: Activity, report: SweepReport) -> None:
    """No pre-filter: every running task is judged by its own signal (R-STALE-06)."""
    declared = await declarations(store)
    claims = await running_claims(store)
    fed = [seen for seen in claims if declared.get(seen.type, UNDECLARED).fed]
    signals = await _signals(activity, fed, report)
    for seen in claims:
        declaration = declared.get(seen.type, UNDECLARED)
        silent = silent_for(seen, fed=declaration.fed, signals=signals, skew_seconds=store.constants.clock_skew_seconds)
        if silent > stale_limit(declaration, store.constants):
            ground = Ground.STALE
        elif overrun(seen, declaration, store.constants):
            ground = Ground.HARD_TIMEOUT
        else:
            continue
        async with _kept(report, f"task {seen.task_id}"):
            if await take_away(store, seen, ground, policy=declaration):
                report.stale += ground is Ground.STALE
                report.overrun += ground is Ground.HARD_TIMEOUT


async def _signals(activity: Activity, fed: list[RunningClaim], report: SweepReport) -> Signals | None:
    if not fed:
        return None
    try:
        return await activity.read([seen.task_id for seen in fed])
    except SlotsUnavailable as error:
        report.errors.append(f"producers' activity: {error}")
        return None


async def _orphans(store: Store, slots: Slots, report: SweepReport) -> None:
    await pending.mark_unserved(store, slots)
    declared = await declarations(store)
    for task in await pending.overdue(store, declared):
        async with _kept(report, f"task {task.task_id}"):
            report.timed_out += await pending.time_out(store, task)


def stale_limit(declared: Declaration, constants: Constants) -> float:
    """Seconds of silence after which a running task is finalised; never below the type's longest permitted run."""
    if declared.stale_seconds is not None:
        return declared.stale_seconds
    if declared.fed:
        return max(FED_STALE_SECONDS, constants.stale_seconds)
    hard = declared.hard_timeout_seconds or 0.0
    return max(constants.stale_seconds, hard + constants.lease_seconds)


def overrun(seen: RunningClaim, declared: Declaration, constants: Constants) -> bool:
    """Whether its own worker failed to end it at the hard time-out: code that ignores its cancellation, and goes on
    showing activity. The worker has the grace of a cancellation and one lease to do it itself.
    """
    if declared.hard_timeout_seconds is None or seen.claimed_at is None:
        return False
    limit = declared.hard_timeout_seconds + constants.cancel_grace_seconds + constants.lease_seconds
    return (seen.read_at - seen.claimed_at).total_seconds() > limit


def _interval(kind: SweepKind, constants: Constants) -> float:
    match kind:
        case SweepKind.EXPIRED:
            return constants.sweep_expired_seconds
        case SweepKind.TOUCH:
            return constants.sweep_touch_seconds
        case SweepKind.STALE:
            return constants.sweep_stale_seconds
        case SweepKind.ORPHANS:
            return constants.sweep_orphans_seconds
        case _:
            assert_never(kind)


@asynccontextmanager
async def _kept(report: SweepReport, what: str) -> AsyncIterator[None]:
    """A fault with one thing keeps the others from nothing (R-ORPHAN-14)."""
    try:
        yield
    except Exception as error:  # whatever it is, the others go on, and the report says so
        _log.exception("sweep: %s failed", what)
        report.errors.append(f"{what}: {type(error).__name__}: {error}")
