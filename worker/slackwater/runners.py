"""How a task's code is run and stopped: on the loop, in a thread, in a process (`processes`).

Rule 16: `run` returns only when the code returned or its process is dead; what did neither is still running, and says
so by not returning. Whatever the code raises, SystemExit included, is a value here: no task takes its worker along.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from slackwater.errors import LeaseLost
from slackwater.logging import logger
from slackwater.sdk import Cancelled, Context, Effects, Run, SyncContext
from slackwater.task import TaskType

log = logger("slackwater.run")


@dataclass(frozen=True)
class Returned:
    value: Any


@dataclass(frozen=True)
class Raised:
    error_type: str
    message: str
    retry_after: float | None = None
    lease_lost: bool = False


@dataclass(frozen=True)
class Stopped:
    """It ended by cancellation, or was killed because it was asked to stop."""


@dataclass(frozen=True)
class Unstarted:
    """The worker could not start it: no doing of the task's."""

    reason: str


CodeEnd: TypeAlias = Returned | Raised | Stopped | Unstarted


class Runner(Protocol):
    async def run(self) -> CodeEnd: ...

    def stop(self) -> None:
        """Ask the code to stop; it may still write a checkpoint. On the main loop."""

    def kill(self) -> None:
        """End it if that can be done from outside. From any thread, as often as you like."""


def raised(error: BaseException) -> Raised:
    retry_after = getattr(error, "retry_after", None)
    log.info("task raised", traceback="".join(traceback.format_exception(error))[-8192:])
    return Raised(
        type(error).__name__,
        str(error),
        retry_after if isinstance(retry_after, int | float) else None,
        isinstance(error, LeaseLost),
    )


class CoroutineRunner:
    def __init__(self, declared: TaskType, run: Run, payload: Any, effects: Effects) -> None:
        self._declared = declared
        self._payload = payload
        self._context = Context(run, effects)
        self._task: asyncio.Task[CodeEnd] | None = None

    async def run(self) -> CodeEnd:
        self._task = asyncio.create_task(self._guarded())
        # Shielded: only `stop` cancels the code, and then its end is awaited, not assumed.
        return await asyncio.shield(self._task)

    async def _guarded(self) -> CodeEnd:
        try:
            return Returned(await self._declared.function(self._context, self._payload))
        except (asyncio.CancelledError, Cancelled):
            return Stopped()
        except BaseException as error:  # see the module's rule
            return raised(error)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def kill(self) -> None:
        """A coroutine can't be killed."""


class LoopBridge:
    """A thread's way to its effects. While the loop is blocked, its calls wait."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._loop = asyncio.get_running_loop()

    def call(self, effect: str, *arguments: Any) -> Any:
        if self.cancelled and effect != "checkpoint":
            raise Cancelled
        try:
            return asyncio.run_coroutine_threadsafe(getattr(self._effects, effect)(*arguments), self._loop).result()
        except asyncio.CancelledError:
            raise Cancelled from None

    def post(self, effect: str, *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(getattr(self._effects, effect), *arguments)

    @property
    def cancelled(self) -> bool:
        return self._effects.cancelled

    @property
    def deadline_left(self) -> float | None:
        return self._effects.deadline_left


class ThreadRunner:
    def __init__(self, declared: TaskType, run: Run, payload: Any, effects: Effects) -> None:
        self._function: Callable[..., Any] = declared.function
        self._payload = payload
        self._context = SyncContext(run, LoopBridge(effects))

    async def run(self) -> CodeEnd:
        loop = asyncio.get_running_loop()
        end: asyncio.Future[CodeEnd] = loop.create_future()
        context = contextvars.copy_context()

        def tell(value: CodeEnd) -> None:
            if not end.done():
                end.set_result(value)

        def work() -> None:
            value = context.run(self._guarded)
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, value)

        # Not an executor's thread: the process must be able to leave a stubborn one behind.
        threading.Thread(target=work, name="slackwater-task", daemon=True).start()
        return await end

    def _guarded(self) -> CodeEnd:
        try:
            return Returned(self._function(self._context, self._payload))
        except Cancelled:
            return Stopped()
        except BaseException as error:  # see the module's rule
            return raised(error)

    def stop(self) -> None:
        """Its next call of the context raises `Cancelled`, and `cancelled` is true."""

    def kill(self) -> None:
        """A thread can't be killed."""
