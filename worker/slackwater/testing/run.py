"""One task of a test: waits for what it does, makes things go wrong, and looks at what is on record.

Rule: each control is one that production has (a drain's deadline, a lease that ran out), through the same code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from slackwater.claim import Ground, Submission
from slackwater.errors import SlackwaterError
from slackwater.executor import Execution
from slackwater.schema import ENDED
from slackwater.store import admin, aftercare, reading, recovery
from slackwater.store import submissions as ledger
from slackwater.store.sql import sql
from slackwater.trust import Ending

if TYPE_CHECKING:
    from slackwater.testing.harness import TaskHarness

T = TypeVar("T")
WAIT_SECONDS = 30.0

_EXPIRE = sql("""
    UPDATE {s}.claim SET lease_until = clock_timestamp() - interval '1 millisecond'
    WHERE task_id = :task_id AND epoch = :epoch AND token = :token AND state = 'running'
""")
_CHECKPOINT = sql("SELECT checkpoint FROM {s}.task WHERE id = :task_id")
_MONEY = sql("""
    SELECT reserved, charged, refunded, late_cost FROM {s}.settlement WHERE task_id = :task_id ORDER BY n DESC LIMIT 1
""")


class HarnessError(AssertionError):
    """What the test waited for did not happen in time, or could not be done."""


class TaskEnded(SlackwaterError):
    """`result` was asked of a task that ended without one; `state`, `error_type` and `message` say how."""

    def __init__(self, state: str, error_type: str | None, message: str) -> None:
        super().__init__(f"the task is {state}: {error_type or 'no error'}: {message}")
        self.state = state
        self.error_type = error_type
        self.message = message


@dataclass(frozen=True)
class Money:
    """The task's present settlement."""

    reserved: Decimal
    charged: Decimal | None
    refunded: Decimal | None
    late_cost: Decimal | None


class TaskRun:
    def __init__(self, harness: TaskHarness, task_id: UUID) -> None:
        self._harness = harness
        self.id = task_id

    # ---- waiting

    async def result(self, *, seconds: float = WAIT_SECONDS) -> Any:
        """What the task returned. Raises TaskEnded if it is failed, cancelled, held or unknown."""
        view = await self._until(f"the end of {self.id}", self._at_rest, seconds)
        if view.state == "done":
            return view.result
        error = await self._error()
        raise TaskEnded(view.state, error.get("error_type"), error.get("message", ""))

    async def running(self, *, seconds: float = WAIT_SECONDS) -> None:
        """Until its code runs."""
        await self._until("a run", self._execution, seconds)

    async def checkpointed(self, *, beyond: Any = None, seconds: float = WAIT_SECONDS) -> Any:
        """Until it stored a checkpoint other than `beyond`; returns it."""

        async def there() -> Any:
            found = await self.checkpoint()
            return None if found is None or found == beyond else found

        return await self._until("a checkpoint", there, seconds)

    async def submitted(self, name: str | None = None, *, seconds: float = WAIT_SECONDS) -> Submission:
        """Until the provider's reference of a submission is on record."""

        async def there() -> Submission | None:
            return next((s for s in await self.submissions() if s.reference and name in (None, s.name)), None)

        return await self._until("a submission with its reference", there, seconds)

    async def event(self, kind: str, *, seconds: float = WAIT_SECONDS) -> reading.Event:
        """Until an event of that kind is stored; returns the first."""

        async def there() -> reading.Event | None:
            return next((event for event in await self.events() if event.kind == kind), None)

        return await self._until(f"an event {kind!r}", there, seconds)

    # ---- what goes wrong

    async def interrupt(self, *, seconds: float = WAIT_SECONDS) -> str:
        """End the present run as a drain's deadline does: cancelled, time for a checkpoint, handed back. Returns the
        state that the type's declaration makes of it; `queued` runs again at once.
        """
        execution = await self._until("a run", self._execution, seconds)
        if not execution.end(Ending.DRAIN_DEADLINE):
            raise HarnessError("the run was ending already")
        with self._harness.claiming_paused():
            await self._harness.over(execution, seconds)
            return await self.state()

    async def lose_lease(self, *, seconds: float = WAIT_SECONDS) -> str:
        """The lease runs out and a sweep takes the task away, while the code runs on: everything it writes from here is
        refused, and its next renewal stops it. Returns the task's state, when the code has stopped.
        """
        execution = await self._until("a run", self._execution, seconds)
        claim, store = execution.claimed.claim, self._harness.store
        with self._harness.claiming_paused():
            while True:
                values = {"task_id": claim.task_id, "epoch": claim.epoch, "token": claim.token}
                async with store.transaction() as connection:
                    await connection.execute(_EXPIRE, values)
                seen = await recovery.running_claims(store, task_id=claim.task_id)
                if not [s for s in seen if s.epoch == claim.epoch]:
                    break  # a sweep, or the run's own end, was first
                if await recovery.take_away(store, seen[0], Ground.EXPIRED):
                    break
            state = await self.state()
            await self._harness.over(execution, seconds)
        return state

    async def cancel(self) -> str:
        """As the user does; returns the state: cancelled, or unknown while a provider may still charge."""
        with self._harness.claiming_paused():
            state = await admin.cancel(self._harness.store, self.id, who="author")
            execution = await self._execution()
            if execution is not None:
                await self._harness.over(execution, WAIT_SECONDS)
        if state is None:
            raise HarnessError("the task is gone")
        return state.value

    async def cared_for(self, *, seconds: float = WAIT_SECONDS) -> list[aftercare.Standing]:
        """Until the type's hooks have run (`on_cancel`, `compensate`), or were given up; returns how they stand."""

        async def there() -> list[aftercare.Standing] | None:
            found = await aftercare.standing(self._harness.store, self.id)
            return found if found and all(one.state != "open" for one in found) else None

        return await self._until("the end of its aftercare", there, seconds)

    # ---- what is on record

    async def view(self) -> reading.TaskView:
        found = await reading.task_view(self._harness.store, self.id)
        if found is None:
            raise HarnessError("the task is gone")
        return found

    async def state(self) -> str:
        return (await self.view()).state

    async def epoch(self) -> int:
        """How many times it was claimed."""
        return (await self.view()).epoch

    async def checkpoint(self) -> Any:
        return (await self._row(_CHECKPOINT)).checkpoint

    async def submissions(self) -> list[Submission]:
        return await ledger.submissions(self._harness.store, self.id)

    async def events(self) -> list[reading.Event]:
        page = await reading.events_after(self._harness.store, self.id, None, 0)
        return [] if page is None else list(page.events)

    async def money(self) -> Money:
        row = await self._row(_MONEY)
        return Money(row.reserved, row.charged, row.refunded, row.late_cost)

    # ---- inside

    async def _row(self, statement: Any) -> Any:
        async with self._harness.store.transaction() as connection:
            return (await connection.execute(statement, {"task_id": self.id})).one()

    async def _error(self) -> dict[str, Any]:
        row = await self._row(sql("SELECT error_info FROM {s}.task WHERE id = :task_id"))
        return row.error_info or {}

    async def _at_rest(self) -> reading.TaskView | None:
        """Ended, or waiting for an administrator; and nothing of it runs here any more."""
        view = await self.view()
        return view if view.state in (*ENDED, "held", "unknown") and await self._execution() is None else None

    async def _execution(self) -> Execution | None:
        return self._harness.execution_of(self.id)

    async def _until(self, what: str, ask: Callable[[], Awaitable[T | None]], seconds: float) -> T:
        answer = await self._harness.told.until(ask, seconds)
        if answer is None:
            raise HarnessError(f"not within {seconds:g} s: {what}; the task is {await self.state()}")
        return answer
