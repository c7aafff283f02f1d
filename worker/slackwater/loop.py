"""The worker: registers, claims, runs, and ends as it should. One supervisor decides; side tasks only report.

Rule: a signal stops claiming in the signal handler itself and cordons the pod from the renewal thread, so that a main
loop blocked by user code delays neither. Whatever fails in a side task is logged and tried again; only `decide` ends
a worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from slackwater import metrics
from slackwater.claim import ClaimedTask, Identity
from slackwater.dispatch import Dispatcher
from slackwater.executor import Execution, Surroundings
from slackwater.health import Pulse
from slackwater.logging import logger, write_now
from slackwater.shutdown import Drain, ExitCode, Situation, Standing, Verdict, decide
from slackwater.spread import spread
from slackwater.task import Registry
from slackwater.trust import Clock, Ending
from slackwater.wake import Wake, for_ever

log = logger("slackwater.worker")
LEAVE_SECONDS = 3.0


class WorkerLinks(Protocol):
    async def register(self) -> Standing: ...
    async def recover_predecessors(self) -> int: ...
    async def heartbeat(self, running: int) -> Standing: ...
    async def sweep(self) -> bool:
        """True: a round was due and nobody else had run it."""

    async def end(self, reason: str) -> None: ...
    async def listen(self, handler: Callable[[str], None]) -> None: ...


CordonSelf = Callable[[str, float | None], "concurrent.futures.Future[None]"]
"""Write the pod's cordon, in the renewal thread, until the store has answered. Arguments: cause, deadline
(monotonic)."""


class Worker:
    def __init__(
        self,
        identity: Identity,
        registry: Registry,
        links: WorkerLinks,
        pulse: Pulse,
        *,
        grace_seconds: float | None,
        heartbeat_seconds: float,
        sweep_seconds: float,
        clock: Clock = time.monotonic,
    ) -> None:
        self.identity = identity
        self._registry = registry
        self._links = links
        self._pulse = pulse
        self._drain = Drain(grace_seconds)
        self._heartbeat_seconds = heartbeat_seconds
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._beat_wanted = asyncio.Event()
        self._executions: dict[asyncio.Task[None], Execution] = {}
        self._sweeping = True
        self._verdict: Verdict | None = None
        self._leaving = False
        self.wake = Wake()
        self.dispatcher: Dispatcher | None = None
        self.around: Surroundings | None = None
        self.cordon_self: CordonSelf | None = None
        self._cordons: list[concurrent.futures.Future[None]] = []
        metrics.CONCURRENCY.set(identity.concurrency)

    # ---- what others ask

    def free(self) -> int:
        return self.identity.concurrency - len(self._executions)

    def claiming(self) -> bool:
        return self._drain.claiming

    def drain_deadline(self) -> float | None:
        return self._drain.deadline

    def refused(self) -> None:
        """A claim was refused: perhaps the pod is cordoned and the next heartbeat is far."""
        self._beat_wanted.set()

    def accept(self, claimed: ClaimedTask, scopes: Any, sent_at: float) -> None:
        declared = self._registry.get(claimed.type)
        assert declared is not None, "candidates are of known types only"
        assert self.around is not None
        execution = Execution(claimed, declared, scopes, self.around, sent_at=sent_at)
        task = asyncio.create_task(self._run(execution, start=self._drain.starting))
        self._executions[task] = execution
        task.add_done_callback(self._ended)

    def stubborn(self) -> None:
        if not self._drain.stubborn:
            self._drain.stubborn = True
            log.error("cordon", cause="Stubborn")
            self._cordon("Stubborn", None)
        self._changed.set()

    def _cordon(self, cause: str, deadline: float | None) -> None:
        if self.cordon_self is not None:
            self._cordons.append(self.cordon_self(cause, deadline))

    # ---- its life

    async def run(self) -> ExitCode:
        ticking = asyncio.create_task(self._tick())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        side: list[asyncio.Task[None]] = [ticking]
        try:
            if await self._register():
                assert self.dispatcher is not None
                side += [
                    asyncio.create_task(for_ever(self._heartbeat, self._beat_pause)),
                    asyncio.create_task(for_ever(self._sweep, self._sweep_pause)),
                    asyncio.create_task(self._links.listen(lambda _queue: self.wake.up())),
                    asyncio.create_task(self._claim_for_ever(self.dispatcher)),
                ]
            code = await self._supervise()
            self._leaving = True
        finally:
            for task in side:
                task.cancel()
        await self._leave(code)
        return code

    async def _register(self) -> bool:
        """Until the store answers, or a signal comes first: then there is nothing to leave behind."""
        pause = 0.5
        while not self._drain.signals:
            try:
                self._take_in(await self._links.register())
                recovered = await self._links.recover_predecessors()
            except Exception as error:  # a store that isn't there yet
                log.warning("not registered yet", cause=f"{type(error).__name__}: {error}")
                await self._change(spread(pause))
                pause = min(2 * pause, 10.0)
                continue
            self._pulse.registered = True
            self._pulse.beat()
            log.info(
                "registered",
                worker=self.identity.worker_id,
                pod=self.identity.pod_uid,
                types=list(self.identity.task_types),
                queues=list(self.identity.queues),
                cordoned=self._drain.cordoned,
                recovered=recovered,
            )
            return True
        return False

    async def _supervise(self) -> ExitCode:
        while True:
            now = self._clock()
            verdict = decide(now, self._situation(now))
            if verdict != self._verdict:
                self._verdict = verdict
                log.info("standing", reason=verdict.reason, running=len(self._executions))
            if verdict.end_all is not None:
                self._end_all(verdict.end_all)
            if verdict.exit_code is not None:
                return verdict.exit_code
            await self._change(self._next_look())

    async def _change(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _end_all(self, ending: Ending) -> None:
        for execution in self._executions.values():
            if execution.end(ending):
                self._drain.handed_back = True

    def _next_look(self) -> float:
        deadline = self._drain.deadline
        left = 1.0 if deadline is None else deadline - self._clock()
        return min(1.0, max(0.05, left))

    def _situation(self, now: float) -> Situation:
        dispatcher = self.dispatcher
        return self._drain.situation(
            now,
            executions=len(self._executions),
            stubborn=sum(execution.stubborn for execution in self._executions.values()),
            in_flight=0 if dispatcher is None else dispatcher.in_flight,
            in_doubt=0 if dispatcher is None else dispatcher.in_doubt,
        )

    async def _leave(self, code: ExitCode) -> None:
        reason = {ExitCode.DEADLINE: "deadline", ExitCode.STUBBORN: "stubborn"}.get(code, "drained")
        log.info("leaving", exit_code=int(code), reason=reason)
        if not self._pulse.registered:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                for written in self._cordons:
                    await asyncio.wrap_future(written)
                if code is not ExitCode.STUBBORN:  # stubborn code still runs: only a witness of its death ends it
                    await self._links.end(reason)
        except Exception as error:  # its heartbeat stops, which says the same
            log.warning("end not written", cause=f"{type(error).__name__}: {error}")

    # ---- side tasks

    async def _run(self, execution: Execution, *, start: bool) -> None:
        metrics.RUNNING.set(len(self._executions))
        await execution.run(start=start)

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._executions.pop(task)
        metrics.RUNNING.set(len(self._executions))
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault of ours: the claim is left to its lease, the worker goes on.
            log.error("execution broke", task=str(execution.claimed.claim.task_id), exc_info=error)
        self.wake.up()
        self._changed.set()

    async def _claim_for_ever(self, dispatcher: Dispatcher) -> None:
        while True:
            try:
                await dispatcher.run()
            except Exception as error:  # a fault of ours: said, and tried again
                log.error("claiming broke", exc_info=error)
                await asyncio.sleep(1.0)

    async def _tick(self) -> None:
        while True:
            self._pulse.turn()
            await asyncio.sleep(min(1.0, self._pulse.live_seconds / 5))

    async def _heartbeat(self) -> None:
        self._take_in(await self._links.heartbeat(len(self._executions)))
        self._pulse.beat()

    async def _beat_pause(self) -> None:
        """Ten seconds, or one if a claim was refused or the pool is held: what changed is to be known."""
        seconds = self._heartbeat_seconds * (0.9 + random.random() / 5)  # noqa: S311 - spreading load
        self._beat_wanted.clear()
        await asyncio.sleep(min(1.0, seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._beat_wanted.wait(), 1.0 if self._drain.held else max(0.0, seconds - 1.0))

    async def _sweep(self) -> None:
        self._sweeping = False  # also if this one has no answer
        self._sweeping = await self._links.sweep()

    async def _sweep_pause(self) -> None:
        """Whoever swept goes on at the sweeps' own pace; the others look half as often, and well within its gap."""
        seconds = self._sweep_seconds * (1 if self._sweeping else 2)
        await asyncio.sleep(spread(seconds))

    def _take_in(self, seen: Standing) -> None:
        before = self._drain
        if seen.cordoned != before.cordoned:
            log.info("cordoned" if seen.cordoned else "cordon called off", cause=seen.cause)
        if seen.ended and not before.declared_dead:
            log.error("declared dead: nothing more is claimed under this id")
        self._drain.take_in(seen, self._clock())
        metrics.CORDONED.set(not self._drain.claiming)
        for execution in self._executions.values():
            execution.deadline_changed()
        self._changed.set()
        self.wake.up()

    # ---- signals

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Between two bytecodes of the main thread, whatever runs there: no locks, no logger, no waiting.

        A worker that leaves does already what a signal asks for, and what would write a cordon may be closed: a
        condemned one leaves by itself, and its pod's deletion comes right after.
        """
        if self._leaving:
            return
        now = self._clock()
        deadline = self._drain.signal(now)
        if self._drain.signals == 1:
            line = {
                "message": "drain started",
                "signal": signal.Signals(number).name,
                "deadline_seconds": None if deadline is None else round(deadline - now, 3),
                "running": len(self._executions),
            }
            write_now(line, self.identity.worker_id)
            self._cordon("Terminated", deadline)
        else:
            write_now({"message": "handing back now"}, self.identity.worker_id)
        self._loop.call_soon_threadsafe(self._changed.set)
