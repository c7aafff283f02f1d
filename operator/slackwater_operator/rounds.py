"""Which pool next. Rule: one round at a time per pool; every wake is answered; a failing pool holds up no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger()
_SPACING_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 30.0

Round = Callable[[str], Awaitable[float | None]]
"""Does one round of a pool; returns when to look again, None when the pool is gone."""


@dataclass
class _Pool:
    due: float | None = None
    woken: float | None = None
    running: bool = False
    failures: int = 0
    not_before: float = 0.0
    tried: float = 0.0


class Queue:
    def __init__(self, round_: Round, *, at_once: int, on_delay: Callable[[float], None] | None = None) -> None:
        self._round = round_
        self._pools: dict[str, _Pool] = {}
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_delay = on_delay
        self._fatal: BaseException | None = None

    def wake(self, uid: str, *, after_seconds: float = 0.0, urgent: bool = False) -> None:
        """`urgent`: a person changed the resource; a pause after failures does not hold that up."""
        now = time.monotonic()
        pool = self._pools.setdefault(uid, _Pool(tried=now))
        if urgent:
            pool.not_before = 0.0
        due = max(now + after_seconds, pool.not_before)
        if pool.due is None or due < pool.due:
            pool.due = due
        if pool.woken is None and not after_seconds:
            pool.woken = now
        self._changed.set()

    def oldest_try_seconds(self) -> float:
        """Age of the least recently tried pool."""
        now = time.monotonic()
        return max((now - pool.tried for pool in self._pools.values()), default=0.0)

    async def run(self) -> None:
        """Until cancelled, or until a round raises something that concerns the whole process."""
        try:
            while self._fatal is None:
                self._changed.clear()
                wait = await self._start_due()
                try:
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                except TimeoutError:
                    pass
            raise self._fatal
        finally:
            for task in self._tasks:
                task.cancel()

    async def _start_due(self) -> float | None:
        now = time.monotonic()
        for uid, pool in list(self._pools.items()):
            if pool.due is not None and not pool.running and pool.due <= now:
                await self._slots.acquire()
                pool.running, pool.due = True, None
                task = asyncio.create_task(self._one(uid, pool), name=f"round {uid}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        waits = [p.due - time.monotonic() for p in self._pools.values() if p.due is not None and not p.running]
        return max(0.0, min(waits)) if waits else None

    async def _one(self, uid: str, pool: _Pool) -> None:
        if pool.woken is not None and self._on_delay is not None:
            self._on_delay(time.monotonic() - pool.woken)
        pool.woken = None
        try:
            again = await self._round(uid)
        except Exception as error:
            again = self._failed(uid, pool, error)
        else:
            pool.failures = 0
            pool.not_before = time.monotonic() + _SPACING_SECONDS
        finally:
            pool.running = False
            pool.tried = time.monotonic()
            self._slots.release()
        if again is None:
            if pool.due is None:
                self._pools.pop(uid, None)
        else:
            self.wake(uid, after_seconds=max(again, _SPACING_SECONDS))
        self._changed.set()

    def _failed(self, uid: str, pool: _Pool, error: Exception) -> float:
        if getattr(error, "concerns_process", False):
            self._fatal = error
        pool.failures += 1
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(pool.failures, 10))
        pool.not_before = time.monotonic() + pause
        log.warning("round failed", pool=uid, error=f"{type(error).__name__}: {error}", again_in=pause)
        return pause
