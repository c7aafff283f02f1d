"""What a task type declares.

Rule: a declaration is data, complete at import, and the worker claims declared types only.

The function may be `async def` (runs on the worker's loop), plain (runs in a child process of its own) or plain with
`threaded=True` (runs in a thread, which can't be ended from outside: the author opts in).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from slackwater.claim import CancelCharge, OnInterrupt
from slackwater.retry import Exponential, RetryPolicy, never

MAX_SILENCE_SECONDS = 600.0
Hook = Callable[..., Awaitable[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(StrEnum):
    COROUTINE = "coroutine"
    PROCESS = "process"
    THREAD = "thread"


@dataclass(frozen=True)
class TaskType:
    name: str
    function: Callable[..., Any] = field(repr=False, compare=False)
    kind: Kind
    queue: str = "default"
    channel: str = ""
    on_interrupt: OnInterrupt = OnInterrupt.FAIL
    hard_timeout_seconds: float | None = None
    stale_seconds: float | None = None
    pending_seconds: float | None = None
    fed: bool = False
    """Fed from outside: the producer's signal judges staleness, not this execution's (rule 10)."""
    silence_seconds: float = 35.0
    retries: int = 0
    retry: RetryPolicy = field(default=never, repr=False, compare=False)
    priority: int = 0
    cost: float = 1.0
    on_lost: OnInterrupt | None = None
    """What a lost lease means, where that differs from an orderly interruption."""
    on_cancel: Hook | None = field(default=None, repr=False, compare=False)
    """Asks the provider to stop: see `slackwater.aftercare`."""
    compensate: Hook | None = field(default=None, repr=False, compare=False)
    """Undoes what a run did that came to nothing: see `slackwater.aftercare`."""
    charge_on_cancel: CancelCharge = CancelCharge.SUBMITTED

    def declaration(self) -> dict[str, Any]:
        """What sweeps, operator and gateway need to know without the task's code; stored at registration."""
        return {
            "queue": self.queue,
            "channel": self.channel,
            "on_interrupt": self.on_interrupt.value,
            "hard_timeout_seconds": self.hard_timeout_seconds,
            "stale_seconds": self.stale_seconds,
            "pending_seconds": self.pending_seconds,
            "fed": self.fed,
            "silence_seconds": self.silence_seconds,
            "retries": self.retries,
            "priority": self.priority,
            "cost": self.cost,
            "on_lost": None if self.on_lost is None else self.on_lost.value,
            "on_cancel": self.on_cancel is not None,
            "compensate": self.compensate is not None,
            "charge_on_cancel": self.charge_on_cancel.value,
        }


class Registry:
    """The types one process knows. The module's `REGISTRY` is what `@task` fills."""

    def __init__(self) -> None:
        self._types: dict[str, TaskType] = {}

    def add(self, declared: TaskType) -> None:
        known = self._types.get(declared.name)
        if known is not None and _origin(known) != _origin(declared):
            raise ValueError(f"task type {declared.name!r} is declared twice: {_origin(known)} and {_origin(declared)}")
        self._types[declared.name] = declared

    def get(self, name: str) -> TaskType | None:
        return self._types.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._types))

    def declarations(self) -> Mapping[str, dict[str, Any]]:
        return {name: declared.declaration() for name, declared in sorted(self._types.items())}


REGISTRY = Registry()


def load(modules: Iterable[str]) -> Registry:
    """Import the task modules; what they declare is in `REGISTRY` afterwards."""
    for module in modules:
        importlib.import_module(module)
    return REGISTRY


def task(
    name: str,
    *,
    queue: str = "default",
    channel: str = "",
    on_interrupt: OnInterrupt | str = OnInterrupt.FAIL,
    hard_timeout_seconds: float | None = None,
    stale_seconds: float | None = None,
    pending_seconds: float | None = None,
    fed: bool = False,
    silence_seconds: float = 35.0,
    retries: int = 0,
    retry: RetryPolicy | None = None,
    priority: int = 0,
    cost: float = 1.0,
    threaded: bool = False,
    on_lost: OnInterrupt | str | None = None,
    on_cancel: Hook | None = None,
    compensate: Hook | None = None,
    charge_on_cancel: CancelCharge | str = CancelCharge.SUBMITTED,
) -> Callable[[Function], Function]:
    """Declare a task type. The function takes the context and the payload; what it returns is the result."""

    def declare(function: Function) -> Function:
        kind = _kind(function, threaded=threaded)
        _check(name, hard_timeout_seconds, stale_seconds, silence_seconds, cost)
        REGISTRY.add(
            TaskType(
                name=name,
                function=function,
                kind=kind,
                queue=queue,
                channel=channel,
                on_interrupt=OnInterrupt(on_interrupt),
                hard_timeout_seconds=hard_timeout_seconds,
                stale_seconds=stale_seconds,
                pending_seconds=pending_seconds,
                fed=fed,
                silence_seconds=silence_seconds,
                retries=retries,
                retry=retry or (Exponential(retries) if retries else never),
                priority=priority,
                cost=cost,
                on_lost=None if on_lost is None else OnInterrupt(on_lost),
                on_cancel=_hook(name, "on_cancel", on_cancel),
                compensate=_hook(name, "compensate", compensate),
                charge_on_cancel=CancelCharge(charge_on_cancel),
            )
        )
        return function

    return declare


def _hook(name: str, which: str, hook: Hook | None) -> Hook | None:
    if hook is not None and not inspect.iscoroutinefunction(hook):
        raise ValueError(f"{name}: {which} must be an `async def`: it runs on the worker's loop, for a minute at most")
    return hook


def _kind(function: Callable[..., Any], *, threaded: bool) -> Kind:
    if inspect.iscoroutinefunction(function):
        if threaded:
            raise ValueError("a coroutine runs on the worker's loop: threaded=True is for plain functions")
        return Kind.COROUTINE
    return Kind.THREAD if threaded else Kind.PROCESS


def _check(name: str, hard: float | None, stale: float | None, silence: float, cost: float) -> None:
    if not name or len(name) > 200 or not name.isprintable():
        raise ValueError(f"not a task type's name: {name!r}")
    if hard is not None and hard <= 0:
        raise ValueError(f"{name}: hard_timeout_seconds must be positive")
    if stale is not None and stale <= 0:
        raise ValueError(f"{name}: stale_seconds must be positive")
    if hard is not None and stale is not None and stale <= hard:
        # R-ORPHAN-04: else the stale sweep ends runs that are within their declared time
        raise ValueError(f"{name}: stale_seconds ({stale:g}) must be above hard_timeout_seconds ({hard:g})")
    if not 0 < silence <= MAX_SILENCE_SECONDS:
        raise ValueError(f"{name}: silence_seconds must be above 0 and at most {MAX_SILENCE_SECONDS:g}")
    if not cost > 0:
        raise ValueError(f"{name}: cost must be positive")


def _origin(declared: TaskType) -> str:
    return f"{declared.function.__module__}.{declared.function.__qualname__}"
