"""How long an execution may act on its claim: the trust window, and the first reason to end it.

Rule: trust counts from the moment of *sending* the last confirmed renewal, on the monotonic clock. Only a statement
that ran and found no such claim is a refusal; silence makes effects wait and, at the type's limit, ends the
execution. Shared by two threads: the renewal thread writes, the main loop reads and waits. Pure apart from the given
clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from enum import StrEnum

from slackwater.claim import Claim
from slackwater.errors import LeaseLost

Clock = Callable[[], float]


class Ending(StrEnum):
    """Why an execution is asked to stop, by whoever was first."""

    LEASE_LOST = "LeaseLost"
    SILENCE = "StoreSilent"
    DRAIN_DEADLINE = "DrainDeadline"
    HURRY = "SecondSignal"
    HARD_TIMEOUT = "HardTimeout"

    @property
    def at_once(self) -> bool:
        """Code that can be killed is killed, without a chance to write a checkpoint."""
        return self in (Ending.LEASE_LOST, Ending.SILENCE, Ending.HURRY)

    @property
    def untrusted(self) -> bool:
        """No more effects."""
        return self in (Ending.LEASE_LOST, Ending.SILENCE)


class Watched:
    """One running claim under renewal."""

    def __init__(
        self,
        claim: Claim,
        *,
        clock: Clock,
        trust_seconds: float,
        silence_seconds: float,
        sent_at: float,
        on_end: Callable[[Ending], None],
    ) -> None:
        self.claim = claim
        self.finishing = False
        """The result is on its way: a refusal cancels nothing, the finish itself finds out."""
        self.giving_back = False
        self.slot_confirmed_at = sent_at
        self.slot_denied_at: float | None = None
        self._clock = clock
        self._trust_seconds = trust_seconds
        self._silence_seconds = silence_seconds
        self._sent_at = sent_at
        self._ending: Ending | None = None
        self._on_end = on_end
        self._evidence = False
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    @property
    def sent_at(self) -> float:
        return self._sent_at

    @property
    def ending(self) -> Ending | None:
        return self._ending

    @property
    def trusted(self) -> bool:
        if self._ending is not None and self._ending.untrusted:
            return False
        return self._clock() - self._sent_at <= self._trust_seconds

    @property
    def silent(self) -> bool:
        return self._clock() - self._sent_at > self._silence_seconds

    def confirm(self, sent_at: float) -> None:
        """A statement sent then has proved the claim: a renewal, or any fenced write (it renews)."""
        with self._lock:
            self._sent_at = max(self._sent_at, sent_at)
        self._wake()

    def end(self, ending: Ending) -> bool:
        """The first ending stands, except that a refusal overrides: it says whose the task is."""
        with self._lock:
            if self._ending is Ending.LEASE_LOST or (self._ending is not None and ending is not Ending.LEASE_LOST):
                return False
            self._ending = ending
        self._on_end(ending)
        self._wake()
        return True

    def refuse(self) -> None:
        if not self.finishing:
            self.end(Ending.LEASE_LOST)

    def show(self) -> None:
        """There is new evidence that the work goes on; the next renewal carries it."""
        self._evidence = True

    def take_evidence(self) -> bool:
        evidence, self._evidence = self._evidence, False
        return evidence

    async def trust(self) -> None:
        """Return once the claim may be acted on. Ends by LeaseLost, or by the cancellation that silence brings."""
        while not self.trusted:
            if self._ending is Ending.LEASE_LOST:
                raise LeaseLost(self.claim)
            self._changed.clear()
            await self._changed.wait()

    def _wake(self) -> None:
        # A closed loop has nobody waiting; the process is leaving.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)
