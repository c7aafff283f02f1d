"""From the pods there are to the pods there should be. Rule: replace first, then shrink, then roll.

Forced drains (a node going, an admin) come before, in `plan`; they have already left the tally. Each function adds
decisions and counts them in the tally at once, so that the whole is a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from slackwater_operator.actions import Action, CallOff, Create, Drain
from slackwater_operator.drain import Look, Standing, Work
from slackwater_operator.names import Cause
from slackwater_operator.pods import free_names
from slackwater_operator.rollout import Tally, victims


class Supply:
    def __init__(self, tally: Tally, names_taken: set[str], known: set[str]) -> None:
        self.tally = tally
        self.spec = tally.spec
        self.taken = names_taken
        self.known = known
        """Revisions whose content is recorded, so that a pod can be made of them."""
        self.actions: list[Action] = []

    def decide(self) -> list[Action]:
        self._replace()
        self._shrink()
        if self.tally.rolling and not self.tally.frozen:
            self._clean_up()
            while self._grow() or self._roll():
                pass
        return self.actions

    # -- growing

    def _replace(self) -> None:
        while self.tally.total < self.spec.desired and self._one_more(self.tally.next_revision(), "too few pods"):
            pass

    def _grow(self) -> bool:
        """The next pod of the wanted revision, within replicas + maxSurge. While that revision is unproven, the room
        goes to the proven one, for what it has lost meanwhile: a rollout that is stuck costs no capacity."""
        tally = self.tally
        if tally.total >= tally.cap:
            return False
        revision = tally.next_revision()
        if revision == tally.chosen.update:
            return tally.new < self.spec.desired - tally.kept and self._one_more(revision, "rolling out")
        lacking = tally.total - tally.unproven < self.spec.desired
        return lacking and self._one_more(revision, "stands in while the new revision is unproven")

    def _one_more(self, revision: str, reason: str) -> bool:
        kept = self.tally.recall(revision)
        if kept is not None:
            self.tally.recallable.remove(kept)
            self.tally.active.append(recalled(kept))
            if kept.cause == Cause.ROLLOUT:
                self.tally.rolling_out -= 1
            sequence = kept.cordon.sequence if kept.cordon else None
            self.actions.append(CallOff(kept.pod.uid, kept.pod.name, sequence, f"{reason}: kept instead of a new pod"))
            return True
        if revision not in self.known:
            return False
        name = next(iter(free_names(self.spec.name, revision, self.taken)))
        self.taken.add(name)
        self.tally.fresh.append(revision)
        self.actions.append(Create(name, revision, reason))
        return True

    # -- shrinking

    def _shrink(self) -> None:
        tally = self.tally
        for view in victims(tally, tally.active):
            if tally.total <= tally.cap:
                return
            if self._side_has_surplus(view) and tally.may_lose(view):
                self._drain(view, Cause.SCALE_DOWN, "more pods than replicas")

    def _side_has_surplus(self, view: Look) -> bool:
        """A partition keeps what it keeps: shrinking never takes a pod that would have to be made again."""
        tally = self.tally
        stays = tally.old_stays
        if view.pod.revision == tally.chosen.update:
            return tally.new > max(0, self.spec.desired - stays)
        return tally.old > stays

    # -- rolling

    def _clean_up(self) -> None:
        """Old pods that hold nothing go first. A dead revision's broken ones are outside the rollout's bound."""
        tally = self.tally
        for view in victims(tally, self._old()):
            if tally.old <= tally.old_stays:
                return
            if not view.holds_nothing(tally.now) or self._would_come_again(view):
                continue
            if view.work is Work.NOTHING and view.pod.revision != tally.chosen.current:
                self._drain(view, Cause.BROKEN, "never came to work, and its revision is not wanted")
            elif tally.rolling_out < self.spec.drain.max_draining:
                self._drain(view, Cause.ROLLOUT, "an old revision that does not serve")

    def _roll(self) -> bool:
        tally = self.tally
        if tally.old <= tally.old_stays or tally.rolling_out >= self.spec.drain.max_draining:
            return False
        for view in victims(tally, self._old()):
            if tally.may_lose(view) and not self._would_come_again(view):
                self._drain(view, Cause.ROLLOUT, f"revision {view.pod.revision} → {tally.chosen.update}")
                return True
        return False

    def _would_come_again(self, view: Look) -> bool:
        """It stands in for a lost pod while the new revision is unproven: drained, it would only be made once more."""
        proven = view.pod.revision == self.tally.chosen.current
        return proven and view.holds_nothing(self.tally.now) and self.tally.next_revision() == view.pod.revision

    def _old(self) -> Iterator[Look]:
        return (v for v in list(self.tally.active) if v.pod.revision != self.tally.chosen.update)

    def _drain(self, view: Look, cause: Cause, reason: str) -> None:
        self.tally.active.remove(view)
        if cause is Cause.ROLLOUT:
            self.tally.rolling_out += 1
        self.actions.append(Drain(view.pod.uid, view.pod.name, cause, self.spec.deadline(cause), reason))


def recalled(view: Look) -> Look:
    """The same pod as it will be seen when its drain has been called off."""
    return replace(view, standing=Standing.ACTIVE, cordon=None, pod=replace(view.pod, cause=None), lift=False)
