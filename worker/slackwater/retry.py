"""Whether a failed task runs again is a value, decided by a pure function of the failure.

A type that declares nothing is never retried: repeating paid work is the task author's decision. An interruption
(lost worker, drain deadline) is not a failure and never comes here; its declaration is `on_interrupt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RetryDecision:
    """Run again after that many seconds of database time, or end (`after_seconds` is None)."""

    after_seconds: float | None
    reason: str

    @property
    def again(self) -> bool:
        return self.after_seconds is not None


@dataclass(frozen=True)
class Failure:
    """One run that ended by the task's own doing."""

    error_type: str
    message: str
    attempts: int
    """Runs that ended so, this one included."""
    retry_after: float | None
    """What the failing party asked for: the task's `RetryLater`, a provider's Retry-After."""


Dice = Callable[[], float]
"""A number in [0, 1); an argument, so that a decision can be repeated."""


class RetryPolicy(Protocol):
    def __call__(self, failure: Failure, dice: Dice, /) -> RetryDecision: ...


NEVER = RetryDecision(None, "the type declares no retry")


def never(_failure: Failure, _dice: Dice) -> RetryDecision:
    return NEVER


@dataclass(frozen=True)
class Exponential:
    """`retries` more runs, waits doubling from `first_seconds` to `cap_seconds`, each in the upper half of its
    window."""

    retries: int
    first_seconds: float = 2.0
    cap_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.retries < 0 or self.first_seconds < 0 or self.cap_seconds < self.first_seconds:
            raise ValueError(f"not a retry policy: {self!r}")

    def __call__(self, failure: Failure, dice: Dice) -> RetryDecision:
        if failure.attempts > self.retries:
            return RetryDecision(None, f"retries used up ({self.retries})")
        exponent = min(failure.attempts - 1, 32)
        window = min(self.first_seconds * 2.0**exponent, self.cap_seconds)
        wait = window * (0.5 + dice() / 2)
        if failure.retry_after is not None:
            wait = max(wait, failure.retry_after)
        return RetryDecision(wait, f"retry {failure.attempts} of {self.retries}")
