"""How a worker comes by its tasks: policy → candidates → token and slots → claim.

Rules 1, 5 and "How a claim is made": whatever can't be read pauses claiming, never a default; a full channel backs
off while others are tried; a token whose claim was refused goes back; a claim without answer keeps its slot until the
claim rows say what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol
from uuid import UUID, uuid4

from slackwater import metrics
from slackwater.backoff import Backoff
from slackwater.claim import Candidate, ClaimedTask
from slackwater.errors import SlotsLost, SlotsUnavailable, StoreUnavailable
from slackwater.logging import logger
from slackwater.spread import spread
from slackwater.trust import Clock
from slackwater.wake import Wake

log = logger("slackwater.dispatch")
LOOK_AHEAD = 16
"""Candidates read beyond the free places, so that full channels and users don't hide the others."""
LOOK_AT_MOST = 1000
LONGEST_PAUSE_SECONDS = 5.0
AT_ONCE = 4
"""Claims of one worker in flight together."""


@dataclass(frozen=True)
class Taken:
    """Slots taken, under this generation."""

    generation: int


@dataclass(frozen=True)
class Full:
    kind: str
    name: str


class Looked(Protocol):
    """What a look for a claim without answer brought: the task, or that none can come any more, or neither."""

    @property
    def task(self) -> ClaimedTask | None: ...
    @property
    def over(self) -> bool: ...


class ClaimLinks(Protocol):
    async def candidates(self, *, limit: int, skip_channels: frozenset[str]) -> list[Candidate]: ...
    async def scopes(self, candidate: Candidate) -> Any: ...
    async def acquire(self, token: UUID, scopes: Any) -> Taken | Full: ...
    async def claim(self, candidate: Candidate, token: UUID, generation: int) -> ClaimedTask | None: ...
    async def look_for(self, candidate: Candidate, token: UUID) -> Looked: ...
    async def release_token(self, token: UUID, scopes: Any) -> None: ...
    async def rebuild(self) -> bool: ...


Accept = Callable[[ClaimedTask, Any, float], None]


class _Attempt(Enum):
    GRANTED = auto()
    MISSED = auto()
    STOP = auto()
    """Nothing else will succeed just now."""


class Dispatcher:
    def __init__(
        self,
        links: ClaimLinks,
        wake: Wake,
        *,
        clock: Clock,
        free: Callable[[], int],
        claiming: Callable[[], bool],
        accept: Accept,
        claim_seconds: float,
        slot_seconds: float,
        poll_seconds: float,
        refused: Callable[[], None],
    ) -> None:
        self._links = links
        self._wake = wake
        self._clock = clock
        self._free = free
        self._claiming = claiming
        self._accept = accept
        self._claim_seconds = claim_seconds
        self._slot_seconds = slot_seconds
        self._poll_seconds = poll_seconds
        self._refused = refused
        self._backoff = Backoff(random.random)
        self._doubts: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._rebuilding: asyncio.Task[None] | None = None
        self._paused: str | None = None
        self._pauses = 0
        self.in_flight = 0

    @property
    def in_doubt(self) -> int:
        """Claims without answer: they hold a place until it is known."""
        return len(self._doubts)

    async def run(self) -> None:
        while True:
            if not self._claiming() or self._room() <= 0:
                await self._wake.wait(self._poll_seconds)
                continue
            if not await self._round():
                await self._wake.wait(self._pause_length())

    def _room(self) -> int:
        return self._free() - self.in_flight - self.in_doubt

    async def _round(self) -> bool:
        """True if a task was claimed: look again at once."""
        try:
            left = await self._look()
        except (StoreUnavailable, TimeoutError) as error:
            self._pause("store", error)
            return False
        granted = 0
        while self._claiming() and (batch := self._next_batch(left)):
            results = await asyncio.gather(*(self._attempt(candidate) for candidate in batch))
            granted += results.count(_Attempt.GRANTED)
            if _Attempt.STOP in results:
                return False
        self._resume()
        return granted > 0

    async def _look(self) -> deque[Candidate]:
        """Candidates in fair order; further down the queue only if all the first belong to users who are full."""
        waiting = self._backoff.waiting(self._clock())
        channels = frozenset(str(name) for kind, name in _pairs(waiting) if kind == "channel")
        limit = self._room() + LOOK_AHEAD
        while True:
            found = await self._links.candidates(limit=limit, skip_channels=channels)
            useful = any(("user", candidate.user_id) not in waiting for candidate in found)
            if useful or len(found) < limit or limit >= LOOK_AT_MOST:
                return deque(found)
            limit *= 8

    def _next_batch(self, left: deque[Candidate]) -> list[Candidate]:
        """Passes over what was found full meanwhile, in this round too."""
        waiting = self._backoff.waiting(self._clock())
        batch: list[Candidate] = []
        while left and len(batch) < min(AT_ONCE, self._room()):
            candidate = left.popleft()
            if waiting.isdisjoint({("user", candidate.user_id), ("channel", candidate.channel)}):
                batch.append(candidate)
        return batch

    async def _attempt(self, candidate: Candidate) -> _Attempt:
        self.in_flight += 1
        try:
            return await self._claim_one(candidate)
        finally:
            self.in_flight -= 1

    async def _claim_one(self, candidate: Candidate) -> _Attempt:
        token = uuid4()
        began = self._clock()
        try:
            scopes = await self._links.scopes(candidate)
        except (StoreUnavailable, TimeoutError) as error:
            self._pause("policy", error)
            return _Attempt.STOP
        try:
            async with asyncio.timeout(self._slot_seconds):
                slots = await self._links.acquire(token, scopes)
        except SlotsLost as error:
            metrics.CLAIMS.labels("lost").inc()
            self._pause("slots lost", error)
            self._rebuild()
            return _Attempt.STOP
        except (SlotsUnavailable, StoreUnavailable, TimeoutError) as error:
            self._pause("redis", error)
            self._spawn(self._links.release_token(token, scopes))  # the script may have run
            return _Attempt.STOP
        if isinstance(slots, Full):
            metrics.CLAIMS.labels("full").inc()
            self._backoff.full((slots.kind, slots.name), self._clock())
            return _Attempt.STOP if slots.kind == "pool" else _Attempt.MISSED
        self._backoff.taken(("channel", candidate.channel))
        self._backoff.taken(("user", candidate.user_id))
        if not self._claiming():
            self._spawn(self._links.release_token(token, scopes))
            return _Attempt.STOP
        return await self._claim_with(candidate, token, scopes, slots, began)

    async def _claim_with(self, candidate: Candidate, token: UUID, scopes: Any, slots: Taken, began: float) -> _Attempt:
        sent_at = self._clock()
        try:
            async with asyncio.timeout(self._claim_seconds):
                claimed = await self._links.claim(candidate, token, slots.generation)
        except (StoreUnavailable, TimeoutError) as error:
            metrics.CLAIMS.labels("no_answer").inc()
            self._pause("store", error)
            doubt = asyncio.create_task(self._resolve(candidate, token, scopes, sent_at))
            self._doubts.add(doubt)
            doubt.add_done_callback(self._doubts.discard)
            return _Attempt.STOP
        metrics.PICKUP.observe(self._clock() - began)
        if claimed is None:
            metrics.CLAIMS.labels("taken").inc()
            self._refused()
            self._spawn(self._links.release_token(token, scopes))
            return _Attempt.MISSED
        metrics.CLAIMS.labels("granted").inc()
        self._accept(claimed, scopes, sent_at)
        return _Attempt.GRANTED

    async def _resolve(self, candidate: Candidate, token: UUID, scopes: Any, sent_at: float) -> None:
        """A claim without answer: found in the claim rows → run it; no longer possible → the token goes back."""
        while True:
            looked: Looked | None = None
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(self._claim_seconds):
                    looked = await self._links.look_for(candidate, token)
            if looked is not None and looked.task is not None:
                log.info("claim found after a lost answer", task=str(looked.task.claim.task_id))
                self._accept(looked.task, scopes, sent_at)
                return
            if looked is not None and looked.over:
                self._spawn(self._links.release_token(token, scopes))
                return
            await asyncio.sleep(spread(1.0))

    def _rebuild(self) -> None:
        if self._rebuilding is None or self._rebuilding.done():
            self._rebuilding = self._spawn(self._rebuild_once())

    async def _rebuild_once(self) -> None:
        if await self._links.rebuild():
            self._wake.up()  # else the pause grows: asking again at once would only keep the store busy

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (SlotsUnavailable, StoreUnavailable, SlotsLost, TimeoutError) as error:
            log.warning("left to expiry", cause=f"{type(error).__name__}: {error}")

    def _pause_length(self) -> float:
        if self._paused is not None:
            self._pauses += 1  # once a round, however many of its claims met the same fault
            window = min(1.0, self._poll_seconds) * 2.0 ** min(self._pauses - 1, 10)
            return spread(min(window, LONGEST_PAUSE_SECONDS))
        now = self._clock()
        again = self._backoff.next_at(now)
        return self._poll_seconds if again is None else min(self._poll_seconds, again - now)

    def _pause(self, reason: str, error: Exception) -> None:
        if self._paused != reason:
            self._resume()
            log.warning("claiming pauses", reason=reason, cause=f"{type(error).__name__}: {error}")
            metrics.PAUSED.labels(reason).set(1)
            self._paused = reason

    def _resume(self) -> None:
        self._pauses = 0
        if self._paused is not None:
            log.info("claiming goes on", after=self._paused)
            metrics.PAUSED.labels(self._paused).set(0)
            self._paused = None


def _pairs(keys: frozenset[Any]) -> list[tuple[str, str]]:
    return [(str(kind), str(name)) for kind, name in keys]
