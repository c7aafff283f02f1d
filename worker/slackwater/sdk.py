"""What task authors import: `task`, the contexts, and the few exceptions that mean something to the worker.

Rule: every effect of a task goes through its context, and every context ends in one `Effects` object of the worker,
which proves the claim. Calls with side effects wait (they don't raise) while the claim can't be confirmed;
`LeaseLost` is final. This module imports no database driver: child processes load it at each start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from slackwater.claim import CancelCharge, Claim, OnInterrupt, Submission
from slackwater.errors import LeaseLost
from slackwater.retry import Exponential, Failure, RetryDecision
from slackwater.task import task

__all__ = [
    "Aftermath",
    "CancelCharge",
    "Cancelled",
    "Claim",
    "Context",
    "Exponential",
    "Failure",
    "LeaseLost",
    "OnInterrupt",
    "ProviderCall",
    "RetryDecision",
    "RetryLater",
    "Run",
    "Submission",
    "SyncContext",
    "task",
]


class RetryLater(Exception):
    """Raised by a task: this run failed, and a repeat before `seconds` is useless (a provider's Retry-After)."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"again in {seconds:g} s")
        self.retry_after = seconds


class Cancelled(BaseException):
    """The execution is to stop now. Raised in plain functions by the next call of the context."""


@dataclass(frozen=True)
class Run:
    """What is known about this run when it starts."""

    claim: Claim
    type: str
    queue: str
    channel: str
    user_id: str
    attempts: int
    interruptions: int
    trace_id: str
    saved: Any = None
    """The checkpoint an earlier run left, or None."""


@dataclass(frozen=True)
class ProviderCall:
    """What the author's `call` gets: send `request` with idempotency key `key`, and the claim for the provider's
    log."""

    key: str
    request: Any
    claim: Claim


@dataclass(frozen=True)
class Aftermath:
    """What a hook is told: the task as it ended, and what its providers were asked."""

    task_id: UUID
    type: str
    user_id: str
    payload: Any
    state: str
    error_type: str | None
    submissions: tuple[Submission, ...]


class Effects(Protocol):
    """The worker's side. Arguments and results are plain JSON values or `Submission`, so that they cross a pipe."""

    async def progress(self, fraction: float) -> None: ...
    async def event(self, kind: str, data: Mapping[str, Any]) -> None: ...
    async def checkpoint(self, data: Any) -> None: ...
    async def intend(self, name: str | None, provider: str, request: Any, after: int) -> Submission: ...
    async def store_reference(self, key: str, reference: str) -> None: ...
    async def resolve(self, name: str, n: int, outcome: Any) -> None: ...
    async def confirm(self) -> None: ...
    def heartbeat(self, evidence: Any) -> None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def deadline_left(self) -> float | None: ...


class Context:
    """The context of an `async def` task."""

    def __init__(self, run: Run, effects: Effects) -> None:
        self.run = run
        self._effects = effects

    @property
    def claim(self) -> Claim:
        return self.run.claim

    @property
    def saved(self) -> Any:
        return self.run.saved

    @property
    def cancelled(self) -> bool:
        return self._effects.cancelled

    @property
    def deadline_left(self) -> float | None:
        """Seconds until this run is ended (hard time-out or drain), or None."""
        return self._effects.deadline_left

    async def progress(self, fraction: float) -> None:
        await self._effects.progress(fraction)

    def heartbeat(self, evidence: Any) -> None:
        """Show new evidence that the work goes on (a provider's progress, bytes received). The same again is none."""
        self._effects.heartbeat(evidence)

    async def event(self, kind: str, data: Mapping[str, Any] | None = None) -> None:
        await self._effects.event(kind, data or {})

    async def checkpoint(self, data: Any) -> None:
        await self._effects.checkpoint(data)

    async def submission(
        self,
        name: str | None = None,
        *,
        provider: str,
        request: Any,
        call: Callable[[ProviderCall], Awaitable[str]],
        after: Submission | None = None,
    ) -> Submission:
        """Ask a provider at most once: intent, then `call` under the intent's key, then its reference. A run that finds
        the reference stored calls nothing; one that finds the intent alone sends the stored request under the same key.
        """
        intent = await self._effects.intend(name, provider, request, after.n if after else 0)
        if intent.reference is not None or intent.outcome is not None:
            return intent
        await self._effects.confirm()
        reference = await call(ProviderCall(intent.key, intent.request, self.claim))
        await self._effects.store_reference(intent.key, reference)
        return replace(intent, reference=reference)

    async def resolve(self, submission: Submission, outcome: Any) -> None:
        """The provider has this outcome on record under the submission's key."""
        await self._effects.resolve(submission.name, submission.n, outcome)


class Bridge(Protocol):
    """How a plain function reaches `Effects`: over a pipe from its process, or over the loop from its thread."""

    def call(self, effect: str, *arguments: Any) -> Any: ...
    def post(self, effect: str, *arguments: Any) -> None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def deadline_left(self) -> float | None: ...


class SyncContext:
    """The context of a plain function: the same calls, blocking."""

    def __init__(self, run: Run, bridge: Bridge) -> None:
        self.run = run
        self._bridge = bridge

    @property
    def claim(self) -> Claim:
        return self.run.claim

    @property
    def saved(self) -> Any:
        return self.run.saved

    @property
    def cancelled(self) -> bool:
        return self._bridge.cancelled

    @property
    def deadline_left(self) -> float | None:
        return self._bridge.deadline_left

    def progress(self, fraction: float) -> None:
        self._bridge.call("progress", fraction)

    def heartbeat(self, evidence: Any) -> None:
        self._bridge.post("heartbeat", evidence)

    def event(self, kind: str, data: Mapping[str, Any] | None = None) -> None:
        self._bridge.call("event", kind, dict(data or {}))

    def checkpoint(self, data: Any) -> None:
        self._bridge.call("checkpoint", data)

    def submission(
        self,
        name: str | None = None,
        *,
        provider: str,
        request: Any,
        call: Callable[[ProviderCall], str],
        after: Submission | None = None,
    ) -> Submission:
        intent: Submission = self._bridge.call("intend", name, provider, request, after.n if after else 0)
        if intent.reference is not None or intent.outcome is not None:
            return intent
        self._bridge.call("confirm")
        reference = call(ProviderCall(intent.key, intent.request, self.claim))
        self._bridge.call("store_reference", intent.key, reference)
        return replace(intent, reference=reference)

    def resolve(self, submission: Submission, outcome: Any) -> None:
        self._bridge.call("resolve", submission.name, submission.n, outcome)
