"""One execution, from its claim to its end: watch → code → judge → finish → give the slots back.

Rules 2, 5 and 16: the claim ends only after the code returned or its process is dead; the slots go back only after the
database said that the claim ended; a lost claim ends without a trace for the user, logged as `fenced`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import structlog

from slackwater import metrics
from slackwater.claim import Claim, ClaimedTask, Done, Failed, HandedBack, Outcome
from slackwater.effects import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, ClaimEffects, Writes
from slackwater.errors import InvalidInput, LeaseLost, StoreUnavailable
from slackwater.judging import judge
from slackwater.logging import logger, user_hash
from slackwater.processes import ProcessRunner
from slackwater.renewal import Renewal
from slackwater.retry import NEVER, Failure, RetryDecision
from slackwater.runners import CodeEnd, CoroutineRunner, Runner, Stopped, ThreadRunner, Unstarted
from slackwater.sdk import Run
from slackwater.spread import spread
from slackwater.task import Kind, TaskType
from slackwater.trust import Clock, Ending

log = logger("slackwater.executor")


class How(StrEnum):
    DONE = "done"
    FAILED = "failed"
    RETRIED = "retried"
    HANDED_BACK = "handed_back"
    FENCED = "fenced"


class FinishingWrites(Writes, Protocol):
    """All may be repeated after no answer: a run's own end, found on record, is success."""

    async def finish(self, claim: Claim, outcome: Done | Failed, retry: RetryDecision) -> str: ...
    async def hand_back(self, claim: Claim, outcome: HandedBack, declared: TaskType) -> str: ...
    async def release(self, claim: Claim, scopes: Any) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """What every execution of a worker shares."""

    writes: FinishingWrites
    renewal: Renewal
    clock: Clock
    answer_seconds: float
    cancel_grace_seconds: float
    modules: Sequence[str]
    inherit: Sequence[int]
    on_stubborn: Callable[[], None]
    drain_deadline: Callable[[], float | None]


class Execution:
    def __init__(
        self,
        claimed: ClaimedTask,
        declared: TaskType,
        scopes: Any,
        around: Surroundings,
        *,
        sent_at: float,
    ) -> None:
        self.claimed = claimed
        self.stubborn = False
        self._declared = declared
        self._scopes = scopes
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._hard_deadline: float | None = None
        self._runner: Runner | None = None
        self._began = around.clock()
        self._watched = around.renewal.watch(
            claimed.claim,
            scopes,
            sent_at=sent_at,
            silence_seconds=declared.silence_seconds,
            on_end=self._on_end,
        )
        self._effects = ClaimEffects(
            around.writes,
            self._watched,
            clock=around.clock,
            answer_seconds=around.answer_seconds,
            deadline=self._deadline,
        )

    def end(self, ending: Ending) -> bool:
        """Ask it to stop, unless its result is already on its way."""
        return not self._watched.finishing and self._watched.end(ending)

    def deadline_changed(self) -> None:
        deadline = self._deadline()
        if isinstance(self._runner, ProcessRunner) and deadline is not None:
            self._runner.tell_deadline(deadline)

    async def run(self, *, start: bool) -> How:
        claim = self.claimed.claim
        with structlog.contextvars.bound_contextvars(
            task=str(claim.task_id),
            epoch=claim.epoch,
            worker=claim.worker_id,
            user=user_hash(self.claimed.user_id),
            trace=self.claimed.trace_id,
        ):
            try:
                how = await self._run(start=start)
            finally:
                self._around.renewal.forget(self._watched)
            await self._give_back()
        metrics.ENDED.labels(self.claimed.type, how.value).inc()
        metrics.RUN_SECONDS.labels(self.claimed.type).observe(self._around.clock() - self._began)
        return how

    async def _run(self, *, start: bool) -> How:
        outcome: Outcome | None
        if start:
            log.info("started", type=self.claimed.type, attempts=self.claimed.attempts)
            code = await self._code()
            outcome = judge(self._watched.ending, code)
            if isinstance(code, Unstarted):
                log.error("not started", cause=code.reason)
                await asyncio.sleep(self._around.cancel_grace_seconds / 10)  # another worker may be better off
        else:
            outcome = HandedBack("NotStarted", started=False)
        await self._effects.references_stored(self._around.answer_seconds)
        self._watched.finishing = True
        if self._watched.ending is Ending.LEASE_LOST:
            outcome = None
        return await self._settle(outcome)

    async def _code(self) -> CodeEnd:
        """Run the code to its end; ask it to stop when told to, and wait for that end as long as it takes."""
        if self._watched.ending is not None:
            return Stopped()
        timer = self._hard_timer()
        self._runner = self._make_runner()
        code = asyncio.create_task(self._runner.run())
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({code, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not code.done():
                await self._stop(code, self._runner)
            return await code
        finally:
            asked.cancel()
            if timer is not None:
                timer.cancel()

    async def _stop(self, code: asyncio.Task[CodeEnd], runner: Runner) -> None:
        ending = self._watched.ending
        log.info("stopping", reason=ending)
        runner.stop()
        if ending is not None and ending.at_once:
            runner.kill()
        grace = self._around.cancel_grace_seconds
        if (await asyncio.wait({code}, timeout=grace))[0]:
            return
        runner.kill()
        if self._declared.kind is not Kind.PROCESS:
            self.stubborn = True
            log.error("stubborn: the code did not stop", seconds=grace)
            self._around.on_stubborn()
        await asyncio.wait({code})
        self.stubborn = False

    def _make_runner(self) -> Runner:
        claimed = self.claimed
        run = Run(
            claim=claimed.claim,
            type=claimed.type,
            queue=claimed.queue,
            channel=claimed.channel,
            user_id=claimed.user_id,
            attempts=claimed.attempts,
            interruptions=claimed.interruptions,
            trace_id=claimed.trace_id,
            saved=claimed.checkpoint,
        )
        match self._declared.kind:
            case Kind.COROUTINE:
                return CoroutineRunner(self._declared, run, claimed.payload, self._effects)
            case Kind.THREAD:
                return ThreadRunner(self._declared, run, claimed.payload, self._effects)
            case Kind.PROCESS:
                return ProcessRunner(
                    self._declared,
                    run,
                    claimed.payload,
                    self._effects,
                    modules=self._around.modules,
                    inherit=self._around.inherit,
                    deadline=self._deadline(),
                )

    async def _settle(self, outcome: Outcome | None) -> How:
        """Write the outcome until the database answers."""
        retry, state = self._decide_retry(outcome), ""
        wait = FIRST_WAIT_SECONDS
        while outcome is not None:
            try:
                async with asyncio.timeout(self._around.answer_seconds):
                    state = await self._write(outcome, retry)
                break
            except LeaseLost:
                outcome = None
                break
            except InvalidInput as error:
                outcome = Failed("InvalidResult", str(error))
                retry = self._decide_retry(outcome)
                continue
            except (StoreUnavailable, TimeoutError) as error:
                log.warning("finish without answer", cause=f"{type(error).__name__}: {error}")
            await asyncio.sleep(spread(wait))
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
        return self._report(outcome, retry, state)

    async def _write(self, outcome: Outcome, retry: RetryDecision) -> str:
        writes, claim = self._around.writes, self.claimed.claim
        if isinstance(outcome, HandedBack):
            return await writes.hand_back(claim, outcome, self._declared)
        return await writes.finish(claim, outcome, retry)

    def _report(self, outcome: Outcome | None, retry: RetryDecision, state: str) -> How:
        match outcome:
            case None:
                metrics.FENCED.inc()
                log.warning("fenced")
                return How.FENCED
            case Done():
                log.info("done", state=state)
                return How.DONE
            case Failed(error_type=error_type, message=message):
                log.info("failed", error_type=error_type, error=message, retry=retry.reason, state=state)
                return How.RETRIED if retry.again else How.FAILED
            case HandedBack(reason=reason, started=started):
                log.info("handed back", reason=reason, started=started, state=state)
                return How.HANDED_BACK

    def _decide_retry(self, outcome: Outcome | None) -> RetryDecision:
        if not isinstance(outcome, Failed):
            return NEVER
        failure = Failure(outcome.error_type, outcome.message, self.claimed.attempts + 1, outcome.retry_after)
        try:
            return self._declared.retry(failure, random.random)
        except Exception as error:  # the author's fault must not keep the task running for ever
            log.error("retry policy raised", cause=f"{type(error).__name__}: {error}")
            return NEVER

    async def _give_back(self) -> None:
        self._watched.giving_back = True
        try:
            await self._around.writes.release(self.claimed.claim, self._scopes)
        except Exception as error:  # it changes no outcome, and expiry heals it (R-SLOT-11)
            log.warning("slots not given back", cause=f"{type(error).__name__}: {error}")

    def _deadline(self) -> float | None:
        known = [d for d in (self._hard_deadline, self._around.drain_deadline()) if d is not None]
        return min(known, default=None)

    def _hard_timer(self) -> asyncio.TimerHandle | None:
        seconds = self._declared.hard_timeout_seconds
        if seconds is None:
            return None
        self._hard_deadline = self._around.clock() + seconds
        return self._loop.call_later(seconds, self.end, Ending.HARD_TIMEOUT)

    def _on_end(self, ending: Ending) -> None:
        """In any thread: a blocked main loop does not keep a lost task's process alive."""
        if ending.at_once and self._runner is not None:
            self._runner.kill()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._asked.set)
