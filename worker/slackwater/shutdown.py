"""What a worker does about its end, decided from what it knows. Pure; the loop acts on it.

Rule: cordoned means nothing new; only SIGTERM or stubborn code makes the process leave, and only when no execution is
left to wait for. A deadline hands running tasks back whether or not a signal came: a drained pod stays, idle and
cordoned.
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
class Situation:
    """Instants are monotonic seconds of this process."""

    cordoned: bool
    """By anybody: seen in the store, or asked of this process by a signal or for stubborn code."""
    signals: int
    cordon_deadline: float | None
    signal_deadline: float | None
    running: int
    """Executions that may still end by themselves or by cancellation."""
    stubborn: int
    """Executions whose code did not stop within its grace."""
    handed_back: bool
    """The deadline, or a second signal, has ended an execution since this cordon began."""

    @property
    def deadline(self) -> float | None:
        known = [d for d in (self.cordon_deadline, self.signal_deadline) if d is not None]
        return min(known, default=None)


@dataclass(frozen=True)
class Verdict:
    claiming: bool
    end_all: Ending | None
    exit_code: ExitCode | None
    reason: str


def decide(now: float, seen: Situation) -> Verdict:
    end_all = _end_all(now, seen)
    leaving = seen.signals > 0 or seen.stubborn > 0
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
