"""Which revision is wanted, which one is proven, and what is written on them. Rule: equality is by content.

The proven (current) revision is the one that completed last; it is what replacements fall back to while the wanted
one has not shown that it works, and what a rollback goes to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from slackwater_operator.actions import Forget, Mark, Record
from slackwater_operator.drain import Look, Standing
from slackwater_operator.pods import revision_hash
from slackwater_operator.seen import Observation, Revision
from slackwater_operator.spec import PoolSpec

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Revisions:
    written: str
    """Hash of what the spec says now."""
    update: str
    """Where the pool goes: as written, or the proven one after a rollback."""
    current: str | None
    """The proven one."""
    recorded: bool
    failed: bool
    """The wanted revision missed its progress deadline."""
    failing: tuple[str, ...] = ()
    """Names of the pods that did."""

    @property
    def rolled_back(self) -> bool:
        return self.update != self.written


def choose(spec: PoolSpec, seen: Observation, views: Iterable[Look], now: datetime) -> Revisions:
    found = match(spec, seen.revisions)
    written = found.name if found else free_name(spec, seen.revisions)
    completed = [r for r in seen.revisions if r.completed is not None]
    last = max(completed, key=lambda r: r.completed or _NEVER, default=None)
    current = last.name if last else None
    other = current is not None and current != written
    failed_before = found is not None and found.failed is not None and other and spec.rollout.rolls_back
    failing = () if found is None or current == written else _failing(spec, found, views, now)
    update = current if failed_before and current else written
    return Revisions(
        written, update, current, recorded=found is not None, failed=bool(failing) or failed_before, failing=failing
    )


def match(spec: PoolSpec, revisions: Iterable[Revision]) -> Revision | None:
    return next((r for r in revisions if r.content == spec.content), None)


def free_name(spec: PoolSpec, revisions: Iterable[Revision]) -> str:
    """Two contents under one hash are all but impossible; a salt keeps even them apart."""
    taken = {r.name for r in revisions}
    salt = 0
    while (name := revision_hash(spec.content, salt)) in taken:
        salt += 1
    return name


def _failing(spec: PoolSpec, wanted: Revision, views: Iterable[Look], now: datetime) -> tuple[str, ...]:
    if spec.rollout.paused or wanted.clock_stopped:
        return ()
    late = now - spec.rollout.progress_deadline
    return tuple(
        view.pod.name
        for view in views
        if view.standing is Standing.ACTIVE
        and view.pod.revision == wanted.name
        and not view.serving
        and max(view.pod.created, wanted.clock or _NEVER) < late
    )


def deadline_passes_at(spec: PoolSpec, wanted: Revision, view: Look) -> datetime:
    return max(view.pod.created, wanted.clock or _NEVER) + spec.rollout.progress_deadline + timedelta(seconds=1)


def upkeep(
    spec: PoolSpec, seen: Observation, chosen: Revisions, *, complete: bool, in_use: set[str]
) -> list[Record | Mark | Forget]:
    """Everything that is written on revisions, each at most once."""
    actions: list[Record | Mark | Forget] = []
    highest = max((r.number for r in seen.revisions), default=0)
    wanted = next((r for r in seen.revisions if r.name == chosen.written), None)
    if wanted is None:
        actions.append(Record(chosen.written, highest + 1, spec.content, exists=False, reason="a new revision"))
        return actions
    if wanted.number < highest:
        actions.append(
            Record(wanted.name, highest + 1, wanted.content, exists=True, reason="an earlier revision is wanted again")
        )
    if chosen.failing and spec.rollout.rolls_back and wanted.failed is None and chosen.current is not None:
        actions.append(Mark(wanted.name, "failed", f"{', '.join(chosen.failing[:3])} not ready in time"))
    if complete and chosen.current != chosen.update and not chosen.rolled_back:
        actions.append(Mark(wanted.name, "completed", "all replicas serve this revision"))
    unfinished = chosen.current != chosen.written and not complete
    if unfinished and spec.rollout.paused and not wanted.clock_stopped:
        actions.append(Mark(wanted.name, "clock-stop", "paused"))
    if unfinished and not spec.rollout.paused and wanted.clock_stopped:
        actions.append(Mark(wanted.name, "clock-start", "resumed"))
    keep = in_use | {chosen.written, chosen.update, chosen.current or ""}
    old = sorted((r for r in seen.revisions if r.name not in keep), key=lambda r: r.number)
    surplus = len(old) - spec.rollout.history_limit
    actions += [Forget(r.name, "beyond revisionHistoryLimit") for r in old[: max(0, surplus)]]
    return actions
