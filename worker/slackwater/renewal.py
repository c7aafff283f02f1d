"""The thread that renews every running claim and its slots.

Rule 4: it has its own event loop, its own Postgres engine and its own Redis client, so that user code that blocks the
worker's loop or burns bytecode can't starve it. One task per claim, one per slot; an error is retried and logged with
its cause, and never ends a renewal. Errors and time-outs are no answer; a slot that is lost or denied ends no
execution.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from slackwater import metrics
from slackwater.claim import Claim
from slackwater.errors import LeaseLost
from slackwater.logging import logger
from slackwater.spread import spread
from slackwater.trust import Clock, Ending, Watched

log = logger("slackwater.renewal")
T = TypeVar("T")
PAUSE_SECONDS = 2.0
"""A watch that comes this late was paused itself (SIGSTOP, a C extension with the GIL): not the store's silence."""


class SlotAnswer(StrEnum):
    HELD = "held"
    DENIED = "denied"
    LOST = "lost"


class Links(Protocol):
    """What the thread calls, connected inside its own loop."""

    async def renew_claim(self, claim: Claim, *, evidence: bool) -> None: ...
    async def renew_slot(self, claim: Claim, scopes: Any) -> SlotAnswer: ...
    async def raise_generation(self, reason: str) -> None: ...


@dataclass(frozen=True)
class Figures:
    renew_seconds: float
    answer_seconds: float
    slot_answer_seconds: float
    slot_patience_seconds: float
    trust_seconds: float

    def retry_seconds(self, failures: int) -> float:
        """Soon at first, then up to a third of the pace of renewal, so that a fleet does not storm a store that is
        coming back (C80). Callers spread it."""
        return min(min(1.0, self.renew_seconds / 5) * 2.0 ** min(failures - 1, 10), self.renew_seconds / 3)


class Renewal:
    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Links]],
        figures: Figures,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._connect = connect
        self._figures = figures
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._links: Links | None = None
        self._watched: dict[Claim, tuple[Watched, list[asyncio.Task[None]]]] = {}
        self._given_up: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._main, name="slackwater-renewal", daemon=True)
        self.turned_at = clock()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def close(self, timeout: float) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout)

    def watch(
        self,
        claim: Claim,
        scopes: Any,
        *,
        sent_at: float,
        silence_seconds: float,
        on_end: Callable[[Ending], None],
    ) -> Watched:
        """Called on the main loop. `on_end` runs in whichever thread ends the execution."""
        watched = Watched(
            claim,
            clock=self._clock,
            trust_seconds=self._figures.trust_seconds,
            silence_seconds=silence_seconds,
            sent_at=sent_at,
            on_end=on_end,
        )
        self._loop.call_soon_threadsafe(self._begin, watched, scopes)
        return watched

    def forget(self, watched: Watched) -> None:
        self._loop.call_soon_threadsafe(self._end, watched)

    def post(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> concurrent.futures.Future[T]:
        """Work that must not wait for the main loop (the cordon of a SIGTERM); safe in a signal handler."""
        return asyncio.run_coroutine_threadsafe(work(*arguments), self._loop)

    async def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        return await asyncio.wrap_future(self.post(work, *arguments))

    # ---- below: in the thread

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        async with self._connect() as links:
            self._links = links
            self._ready.set()
            watch = asyncio.create_task(self._watch())
            await self._stop.wait()
            watch.cancel()
            # Also those of claims forgotten just now, whose cancellation is still on its way.
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, watched: Watched, scopes: Any) -> None:
        assert self._links is not None
        tasks = [
            asyncio.create_task(self._keep_claim(watched, self._links)),
            asyncio.create_task(self._keep_slot(watched, scopes, self._links)),
        ]
        self._watched[watched.claim] = (watched, tasks)

    def _end(self, watched: Watched) -> None:
        _, tasks = self._watched.pop(watched.claim, (watched, []))
        for task in tasks:
            task.cancel()

    async def _watch(self) -> None:
        """Judge silence. After a pause of this whole process one renewal gets its chance first."""
        tick = min(0.5, self._figures.renew_seconds / 10)
        last, chance_until = self._clock(), 0.0
        while True:
            await asyncio.sleep(tick)
            now = self.turned_at = self._clock()
            if now - last > tick + PAUSE_SECONDS:
                log.warning("paused", seconds=round(now - last, 1))
                chance_until = now + self._figures.answer_seconds
            last = now
            if now < chance_until:
                continue
            for watched, _ in list(self._watched.values()):
                if watched.silent and watched.ending is None and not watched.finishing:
                    self._log(watched).warning("store silent: ending the execution")
                    watched.end(Ending.SILENCE)

    async def _keep_claim(self, watched: Watched, links: Links) -> None:
        wait = self._spread(watched.sent_at + self._figures.renew_seconds - self._clock())
        failures = 0
        while True:
            await asyncio.sleep(wait)
            answer = await self._renew(watched, links)
            if answer is None:
                return
            failures = 0 if answer else failures + 1
            wait = self._next(failures)

    async def _renew(self, watched: Watched, links: Links) -> bool | None:
        """True: held; False: no answer; None: refused."""
        evidence = watched.take_evidence()
        sent_at = self._clock()
        try:
            await self._answered(links.renew_claim(watched.claim, evidence=evidence))
        except LeaseLost:
            metrics.RENEWALS.labels("refused").inc()
            watched.refuse()
            return None
        except Exception as error:  # whatever it is, it is no answer (rule 4)
            metrics.RENEWALS.labels("no_answer").inc()
            if evidence:
                watched.show()
            self._log(watched).warning("renewal without answer", cause=f"{type(error).__name__}: {error}")
            return False
        metrics.RENEWALS.labels("held").inc()
        watched.confirm(sent_at)
        return True

    async def _answered(self, asked: Coroutine[Any, Any, None]) -> None:
        """Its answer within `answer_seconds`. A driver may take long to give a query up; that is not waited for."""
        task = asyncio.create_task(asked)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._figures.answer_seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        task.cancel()
        self._given_up.add(task)
        task.add_done_callback(self._forget_given_up)
        raise TimeoutError(f"no answer within {self._figures.answer_seconds:g} s")

    def _forget_given_up(self, task: asyncio.Task[None]) -> None:
        self._given_up.discard(task)
        if not task.cancelled():
            task.exception()  # whatever it is, the next renewal asks again

    async def _keep_slot(self, watched: Watched, scopes: Any, links: Links) -> None:
        # Early, but not for tasks that end at once: until the first renewal a slot outlives its worker for longer.
        wait, failures = self._spread(self._figures.renew_seconds / 15), 0
        while watched.ending is not Ending.LEASE_LOST:
            await asyncio.sleep(wait)
            held = await self._renew_slot(watched, scopes, links)
            failures = 0 if held else failures + 1
            wait = self._next(failures)

    async def _renew_slot(self, watched: Watched, scopes: Any, links: Links) -> bool:
        sent_at = self._clock()
        try:
            async with asyncio.timeout(self._figures.slot_answer_seconds):
                answer = await links.renew_slot(watched.claim, scopes)
        except Exception as error:  # no fault of Redis ends an execution
            metrics.SLOT_RENEWALS.labels("no_answer").inc()
            self._log(watched).warning("slot renewal without answer", cause=f"{type(error).__name__}: {error}")
            await self._doubt(watched, links, since=watched.slot_confirmed_at)
            return False
        metrics.SLOT_RENEWALS.labels(answer.value).inc()
        if answer is SlotAnswer.HELD:
            watched.slot_confirmed_at, watched.slot_denied_at = sent_at, None
            return True
        if answer is SlotAnswer.DENIED and not watched.giving_back:
            watched.slot_denied_at = sent_at
            self._log(watched).warning("slot denied")
            await self._raise_if_held(watched, links, "slot denied")
        return False

    async def _doubt(self, watched: Watched, links: Links, *, since: float) -> None:
        if self._clock() - since > self._figures.slot_patience_seconds:
            await self._raise_if_held(watched, links, "slot not renewed")

    async def _raise_if_held(self, watched: Watched, links: Links, reason: str) -> None:
        """Rule 6: the sets are wrong only if a renewal *sent after* the doubt finds the claim alive."""
        if watched.giving_back or watched.finishing or watched.ending is not None:
            return
        if not await self._renew(watched, links) or watched.giving_back:
            return
        try:
            await links.raise_generation(reason)
        except Exception as error:  # the next renewal of the slot tries again
            self._log(watched).warning("generation not raised", cause=f"{type(error).__name__}: {error}")

    def _next(self, failures: int) -> float:
        if failures == 0:
            return self._spread(self._figures.renew_seconds)
        return spread(self._figures.retry_seconds(failures))

    def _spread(self, seconds: float) -> float:
        """Never later than asked, at most a tenth earlier: claims made together drift apart."""
        return max(0.0, seconds * (1 - random.random() / 10))  # noqa: S311 - spreading load, not a secret

    def _log(self, watched: Watched) -> Any:
        return log.bind(task=str(watched.claim.task_id), epoch=watched.claim.epoch)
