"""A running task's effects, each proving the claim (rule 2). The one implementation behind every kind of context.

Rule 4: while the claim can't be confirmed, effects wait; no answer from the store is retried, not raised. A refusal is
final: it raises LeaseLost and ends the execution. Once the run is over, effects of code left behind are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from slackwater import limits
from slackwater.claim import Claim, Submission
from slackwater.errors import InvalidInput, LeaseLost, StoreUnavailable
from slackwater.logging import logger
from slackwater.spread import spread
from slackwater.trust import Clock, Watched

log = logger("slackwater.effects")
T = TypeVar("T")
REFERENCE_LENGTH = 2048
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.2, 2.0


class Writes(Protocol):
    """The store's writes, bound to the main loop's engine. Each proves the claim; all but
    `store_reference` and `late_outcome`."""

    async def progress(self, claim: Claim, fraction: float) -> None: ...
    async def add_event(self, claim: Claim, counter: int, kind: str, data: dict[str, Any]) -> None: ...
    async def checkpoint(self, claim: Claim, data: Any) -> None: ...
    async def intend(self, claim: Claim, name: str, provider: str, request: Any, after: int) -> Submission: ...
    async def store_reference(self, key: str, reference: str) -> None: ...
    async def resolve(self, claim: Claim, name: str, n: int, outcome: Any) -> None: ...
    async def late_outcome(self, claim: Claim, name: str, n: int, outcome: Any) -> None:
        """The same without a claim: stored, acted on by nobody."""


class ClaimEffects:
    def __init__(
        self,
        writes: Writes,
        watched: Watched,
        *,
        clock: Clock,
        answer_seconds: float,
        deadline: Callable[[], float | None],
    ) -> None:
        self._writes = writes
        self._watched = watched
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._deadline = deadline
        self._events = 0
        self._submissions = 0
        self._evidence: Any = None
        self._references: set[asyncio.Task[None]] = set()

    async def progress(self, fraction: float) -> None:
        if not (isinstance(fraction, int | float) and 0 <= fraction <= 1):
            raise InvalidInput("progress", 1, "must be a number from 0 to 1")
        await self._write(lambda: self._writes.progress(self._watched.claim, float(fraction)))

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        limits.check_name(kind, field="kind")
        self._events += 1
        counter = self._events  # one number however often the write is repeated: a lost reply adds nothing
        await self._write(lambda: self._writes.add_event(self._watched.claim, counter, kind, dict(data)))

    async def checkpoint(self, data: Any) -> None:
        await self._write(lambda: self._writes.checkpoint(self._watched.claim, data))

    async def intend(self, name: str | None, provider: str, request: Any, after: int = 0) -> Submission:
        if self._watched.ending is not None:
            raise asyncio.CancelledError  # nothing new is asked of a provider by a run that is to stop
        if name is None:
            self._submissions += 1
            name = str(self._submissions)
        limits.check_name(name, field="submission")
        return await self._write(lambda: self._writes.intend(self._watched.claim, name, provider, request, after))

    async def store_reference(self, key: str, reference: str) -> None:
        """Not fenced (rule 11), and not lost by a cancellation that comes between the provider's answer and this."""
        if not isinstance(reference, str) or not 0 < len(reference) <= REFERENCE_LENGTH or not reference.isprintable():
            raise InvalidInput("reference", REFERENCE_LENGTH, "must be printable text that is not empty")
        task = asyncio.create_task(self._store_reference(key, reference))
        self._references.add(task)
        task.add_done_callback(self._references.discard)
        await asyncio.shield(task)

    async def _store_reference(self, key: str, reference: str) -> None:
        await self._repeat(lambda: self._answered(lambda: self._writes.store_reference(key, reference)))

    async def resolve(self, name: str, n: int, outcome: Any) -> None:
        try:
            await self._write(lambda: self._writes.resolve(self._watched.claim, name, n, outcome))
        except LeaseLost:
            # A fact about the provider, whoever holds the lease: the next run finds it. One try: it can ask again.
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                await self._answered(lambda: self._writes.late_outcome(self._watched.claim, name, n, outcome))
            raise

    async def confirm(self) -> None:
        """Before an effect that is not the store's: the claim can be acted on."""
        self._refuse_if_over()
        await self._watched.trust()

    def heartbeat(self, evidence: Any) -> None:
        if evidence != self._evidence:
            self._evidence = evidence
            self._watched.show()

    @property
    def cancelled(self) -> bool:
        return self._watched.ending is not None

    @property
    def deadline_left(self) -> float | None:
        deadline = self._deadline()
        return None if deadline is None else max(0.0, deadline - self._clock())

    async def references_stored(self, seconds: float) -> None:
        """A reference that the provider gave is worth waiting for, within reason: its key finds it again."""
        if self._references:
            await asyncio.wait(set(self._references), timeout=seconds)

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        async def proved() -> T:
            self._refuse_if_over()
            await self._watched.trust()
            sent_at = self._clock()
            try:
                value = await self._answered(write)
            except LeaseLost:
                self._watched.refuse()
                raise
            self._watched.confirm(sent_at)
            return value

        return await self._repeat(proved)

    async def _repeat(self, write: Callable[[], Awaitable[T]]) -> T:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await write()
            except (StoreUnavailable, TimeoutError) as error:
                log.warning("write without answer", cause=f"{type(error).__name__}: {error}")
            await asyncio.sleep(spread(wait))
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _answered(self, write: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(self._answer_seconds):
            return await write()

    def _refuse_if_over(self) -> None:
        if self._watched.finishing:
            raise LeaseLost(self._watched.claim)
