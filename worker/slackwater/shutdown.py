"""What a worker does about its end, decided from what it knows. Pure; the loop acts on it.

Rule: cordoned means nothing new; only SIGTERM, stubborn code or a condemned cordon makes the process leave, and only
when no execution is left to wait for. A deadline hands running tasks back whether or not a signal came: a drained pod
stays, idle and cordoned. A condemned one leaves by itself: its deletion is decided and can't be called off, and the
SIGTERM that should tell may have come before the process could hear it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from slackwater.trust import Ending

GRACE_RESERVE_SECONDS = 30.0
"""Kept of the pod's grace for handing back, so that Kubernetes' SIGKILL finds nothing to kill."""


class ExitCode(IntEnum):
    DRAINED = 0
    SETTINGS = 2
    DEADLINE = 3
    STUBBORN = 4


@dataclass(frozen=True)
class Standing:
    """What registration and heartbeats say of this worker's pod. `ended`: somebody declared this worker dead."""

    cordoned: bool
    cause: str | None
    deadline_in: float | None
    admission: str
    ended: bool
    condemned: bool = False
    """Cordoned for good: the store found no claim, and the pod is about to be deleted."""


@dataclass(frozen=True)
class Situation:
    cordoned: bool
    """By anybody: seen in the store, or asked of this process by a signal or for stubborn code."""
    signals: int
    deadline: float | None
    """Monotonic: the earlier of the cordon's and the signal's."""
    running: int
    """Executions that may still end by themselves or by cancellation."""
    stubborn: int
    """Executions whose code did not stop within its grace."""
    handed_back: bool
    """The deadline, or a second signal, has ended an execution since this cordon began."""
    condemned: bool = False


@dataclass(frozen=True)
class Verdict:
    claiming: bool
    end_all: Ending | None
    exit_code: ExitCode | None
    reason: str


def decide(now: float, seen: Situation) -> Verdict:
    end_all = _end_all(now, seen)
    leaving = seen.signals > 0 or seen.stubborn > 0 or seen.condemned
    if not (seen.cordoned or leaving):
        return Verdict(True, None, None, "claiming")
    if not leaving or seen.running:
        return Verdict(False, end_all, None, "idle until told" if not seen.running else "finishing what runs")
    if seen.stubborn:
        return Verdict(False, end_all, ExitCode.STUBBORN, f"{seen.stubborn} executions did not stop")
    if seen.handed_back:
        return Verdict(False, None, ExitCode.DEADLINE, "handed back at the deadline")
    return Verdict(False, None, ExitCode.DRAINED, "drained")


def _end_all(now: float, seen: Situation) -> Ending | None:
    if not seen.running:
        return None
    if seen.signals > 1:
        return Ending.HURRY
    if seen.deadline is not None and now >= seen.deadline:
        return Ending.DRAIN_DEADLINE
    return None


class Drain:
    """What one process knows about its end, from signals, heartbeats and its own code. Instants are given."""

    def __init__(self, grace_seconds: float | None) -> None:
        self._grace_seconds = grace_seconds
        self._seen = Standing(False, None, None, "", ended=False)
        self._cordon_deadline: float | None = None
        self._signal_deadline: float | None = None
        self.signals = 0
        self.stubborn = False
        self.handed_back = False

    @property
    def claiming(self) -> bool:
        """Read at each step of a claim, so that a signal counts at once."""
        seen = self._seen
        open_pool = seen.admission in ("", "Open")
        return open_pool and not (self.signals or self.stubborn or seen.cordoned or seen.ended)

    @property
    def starting(self) -> bool:
        """May code still begin? A claim that came too late goes back unstarted."""
        return not (self.signals or self.stubborn)

    @property
    def held(self) -> bool:
        return self._seen.admission not in ("", "Open")

    @property
    def cordoned(self) -> bool:
        return self._seen.cordoned

    @property
    def declared_dead(self) -> bool:
        return self._seen.ended

    @property
    def deadline(self) -> float | None:
        known = [d for d in (self._cordon_deadline, self._signal_deadline) if d is not None]
        return min(known, default=None)

    def take_in(self, seen: Standing, now: float) -> None:
        self._seen = seen
        self._cordon_deadline = None if seen.deadline_in is None else now + seen.deadline_in
        if not seen.cordoned and not self.signals:
            self.handed_back = False  # the drain was called off

    def signal(self, now: float) -> float | None:
        """A SIGTERM; answers the deadline that the first one sets."""
        self.signals += 1
        if self.signals == 1 and self._grace_seconds is not None:
            reserve = min(GRACE_RESERVE_SECONDS, self._grace_seconds / 2)
            self._signal_deadline = now + self._grace_seconds - reserve
        return self._signal_deadline

    def situation(self, now: float, *, executions: int, stubborn: int, in_flight: int, in_doubt: int) -> Situation:
        given_up = self.signals > 1 or (self.deadline is not None and now >= self.deadline)
        # A claim without answer is looked for as long as there is time; a later look finds its lease expired.
        on_the_way = in_flight + (0 if given_up else in_doubt)
        return Situation(
            cordoned=self.cordoned,
            signals=self.signals or int(self.declared_dead),
            deadline=self.deadline,
            running=executions - stubborn + on_the_way,
            stubborn=stubborn or int(self.stubborn),
            handed_back=self.handed_back,
            condemned=self._seen.condemned,
        )
