"""How long a full channel or user is left alone. Pure: time and dice are arguments.

R-SLOT-14 to 16: the window is 200 ms, doubled to at most 2 s; the wait is a random time in its upper half; the first
try is made at once, and a success forgets all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

FIRST_SECONDS = 0.2
CAP_SECONDS = 2.0


@dataclass(frozen=True)
class _Wait:
    window: float
    until: float


class Backoff:
    def __init__(self, dice: Callable[[], float]) -> None:
        self._dice = dice
        self._waits: dict[Hashable, _Wait] = {}

    def full(self, key: Hashable, now: float) -> float:
        """Note that it was full; answers how long to leave it alone."""
        self._forget_old(now)
        before = self._waits.get(key)
        window = FIRST_SECONDS if before is None else min(2 * before.window, CAP_SECONDS)
        seconds = window * (0.5 + self._dice() / 2)
        self._waits[key] = _Wait(window, now + seconds)
        return seconds

    def taken(self, key: Hashable) -> None:
        self._waits.pop(key, None)

    def waiting(self, now: float) -> frozenset[Hashable]:
        return frozenset(key for key, wait in self._waits.items() if wait.until > now)

    def next_at(self, now: float) -> float | None:
        return min((wait.until for wait in self._waits.values() if wait.until > now), default=None)

    def _forget_old(self, now: float) -> None:
        for key in [key for key, wait in self._waits.items() if now - wait.until > 10 * CAP_SECONDS]:
            del self._waits[key]
