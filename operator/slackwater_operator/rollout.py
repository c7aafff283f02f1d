"""Surge and unavailable arithmetic; which pod next. Rule: the bounds are counted before anything is chosen.

Two bounds: pods not draining ≤ replicas + maxSurge; pods draining for Rollout ≤ maxDraining. And a floor: serving
pods never fall below replicas - maxUnavailable by our own doing. A `Tally` counts as if each choice were already
seen, so that a plan made again on its own outcome chooses nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from slackwater_operator.drain import Look, Standing, Work
from slackwater_operator.names import RECALLABLE, Cause
from slackwater_operator.revisions import Revisions
from slackwater_operator.spec import PoolSpec


@dataclass
class Tally:
    spec: PoolSpec
    chosen: Revisions
    now: datetime
    active: list[Look] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    """Revisions of pods that this plan creates."""
    rolling_out: int = 0
    """Pods draining for cause Rollout, terminating ones included until their container has ended."""
    recallable: list[Look] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.active) + len(self.fresh)

    @property
    def new(self) -> int:
        return sum(v.pod.revision == self.chosen.update for v in self.active) + self.fresh.count(self.chosen.update)

    @property
    def old(self) -> int:
        return self.total - self.new

    @property
    def serving(self) -> int:
        return sum(self._counts(v) for v in self.active)

    def _counts(self, view: Look) -> bool:
        if view.pod.revision == self.chosen.update:
            return view.available(self.now, self.spec.rollout.min_ready)
        return view.serving

    @property
    def floor(self) -> int:
        return self.spec.desired - self.spec.unavailable

    @property
    def unproven(self) -> int:
        return self.fresh.count(self.chosen.update) + sum(
            v.pod.revision == self.chosen.update and not self._counts(v) for v in self.active
        )

    @property
    def frozen(self) -> bool:
        """The rollout stands: paused, failed and told to stop, or its revision is not recorded yet."""
        stopped = self.chosen.failed and not self.chosen.rolled_back
        return self.spec.rollout.paused or stopped or not self.chosen.recorded

    @property
    def kept(self) -> int:
        """The canary's partition: pods that stay on the proven revision."""
        if self.chosen.current in (None, self.chosen.update):
            return 0
        return min(self.spec.rollout.partition, self.spec.desired)

    @property
    def old_stays(self) -> int:
        """How many pods of another revision stay for now; a rollout that stands drains nobody."""
        return max(self.kept, self.spec.desired - self.new) if self.frozen else self.kept

    @property
    def rolling(self) -> bool:
        return self.spec.desired > 0 and self.old > self.kept

    @property
    def cap(self) -> int:
        return self.spec.desired + (self.spec.surge if self.rolling else 0)

    def may_lose(self, view: Look) -> bool:
        """The floor: what serves may go only while enough others do."""
        return view.holds_nothing(self.now) or self.serving - self._counts(view) >= self.floor

    def next_revision(self) -> str:
        """Of a replacement: the wanted revision as long as few pods of it are unproven, else the proven one."""
        current, update = self.chosen.current, self.chosen.update
        if current is None or current == update or not self.chosen.recorded:
            return current or update
        if self.old < self.old_stays:
            return current
        proven_serves = any(v.pod.revision == current and v.serving for v in self.active)
        if proven_serves and self.unproven >= max(1, self.spec.surge + self.spec.unavailable):
            return current
        return update

    def recall(self, revision: str) -> Look | None:
        """A draining pod that can be kept instead of a new one made: the one with most to lose first."""
        fitting = [v for v in self.recallable if v.pod.revision == revision]
        return min(fitting, key=lambda v: (not v.pod.ready, -v.work, v.pod.name), default=None)


def tally(spec: PoolSpec, chosen: Revisions, views: Iterable[Look], now: datetime) -> Tally:
    found = Tally(spec, chosen, now)
    for view in views:
        if view.standing is Standing.ACTIVE:
            found.active.append(view)
        if view.cause == Cause.ROLLOUT and _takes_room(view):
            found.rolling_out += 1
        if _recallable(view):
            found.recallable.append(view)
    return found


def _takes_room(view: Look) -> bool:
    """Of a rollout's draining pods: what is condemned or deleted counts only while its container runs, so that one
    stuck on a dead node or behind a foreign finalizer holds up nobody."""
    if view.standing is Standing.TERMINATING or (view.standing is Standing.DRAINING and view.condemned):
        return view.pod.running and view.reachable
    return view.standing is Standing.DRAINING


def _recallable(view: Look) -> bool:
    return (
        view.standing is Standing.DRAINING
        and view.pod.cause in RECALLABLE
        and not view.condemned
        and (view.cordon is None or view.cordon.ours)
        and view.going is None
        and view.reachable
        and not view.pod.broken
    )


def victims(found: Tally, group: Iterable[Look]) -> list[Look]:
    """Who goes first: nothing to lose, idle, soonest free, youngest work; among equals dead, old, new revisions."""

    def age(view: Look) -> int:
        if view.pod.revision == found.chosen.update:
            return 2
        return 1 if view.pod.revision == found.chosen.current else 0

    def key(view: Look) -> tuple[Work, int, datetime, float, str]:
        return (view.work, age(view), view.free_at(), -view.work_began(), view.pod.name)

    return sorted(group, key=key)
