"""One execution against a scripted store: its effects, its end, and when its slots go back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from slackwater.claim import Claim, ClaimedTask, Done, Failed, HandedBack, Submission
from slackwater.errors import InvalidInput, LeaseLost, SlotsUnavailable, StoreUnavailable
from slackwater.executor import Execution, How, Surroundings
from slackwater.renewal import Figures, Renewal, SlotAnswer
from slackwater.retry import Exponential, RetryDecision
from slackwater.runners import CodeEnd, Stopped
from slackwater.sdk import Context, ProviderCall, SyncContext
from slackwater.task import Kind, TaskType
from slackwater.trust import Ending

CLAIM = Claim(uuid4(), 1, uuid4(), "w-1")
CLAIMED = ClaimedTask(
    claim=CLAIM,
    type="t",
    queue="default",
    user_id="alice",
    channel="",
    payload={"n": 1},
    checkpoint={"at": 5},
    attempts=0,
    interruptions=0,
    trace_id="",
    lease_until=datetime(2026, 1, 1, tzinfo=UTC),
    settlement=1,
)


@dataclass
class Scripted:
    """The store and Redis. `answers[name]`: what the next calls of that name raise, in order; then they succeed."""

    answers: dict[str, list[Exception]] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    renewal_answer: Exception | None = None
    reference: str | None = None

    def _call(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if self.answers.get(name):
            raise self.answers[name].pop(0)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]

    async def progress(self, claim: Claim, fraction: float) -> None:
        self._call("progress", fraction)

    async def add_event(self, claim: Claim, counter: int, kind: str, data: dict[str, Any]) -> None:
        self._call("event", counter, kind, data)

    async def checkpoint(self, claim: Claim, data: Any) -> None:
        self._call("checkpoint", data)

    async def intend(self, claim: Claim, name: str, provider: str, request: Any, after: int) -> Submission:
        self._call("intend", name)
        return Submission(claim.task_id, name, 1, "key-1", provider, {"stored": True}, self.reference)

    async def store_reference(self, key: str, reference: str) -> None:
        self._call("reference", key, reference)

    async def late_outcome(self, claim: Claim, name: str, n: int, outcome: Any) -> None:
        self._call("late_outcome", name, n, outcome)

    async def resolve(self, claim: Claim, name: str, n: int, outcome: Any) -> None:
        self._call("resolve", name, n, outcome)

    async def finish(self, claim: Claim, outcome: Done | Failed, retry: RetryDecision) -> str:
        self._call("finish", outcome, retry.again)
        return "done"

    async def hand_back(self, claim: Claim, outcome: HandedBack, declared: TaskType) -> str:
        self._call("hand_back", outcome)
        return "queued"

    async def release(self, claim: Claim, scopes: Any) -> None:
        self._call("release", scopes)

    async def renew_claim(self, claim: Claim, *, evidence: bool) -> None:
        if self.renewal_answer is not None:
            raise self.renewal_answer

    async def renew_slot(self, claim: Claim, scopes: Any) -> SlotAnswer:
        return SlotAnswer.HELD

    async def raise_generation(self, reason: str) -> None: ...

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Scripted]:
        yield self


@dataclass
class Rig:
    store: Scripted
    renewal: Renewal
    stubborn: asyncio.Event = field(default_factory=asyncio.Event)

    def execution(self, function: Callable[..., Any], kind: Kind = Kind.COROUTINE, **declared: Any) -> Execution:
        around = Surroundings(
            writes=self.store,
            renewal=self.renewal,
            clock=time.monotonic,
            answer_seconds=1.0,
            cancel_grace_seconds=0.1,
            modules=(),
            inherit=(),
            on_stubborn=self.stubborn.set,
            drain_deadline=lambda: None,
        )
        return Execution(CLAIMED, TaskType("t", function, kind, **declared), "scopes", around, sent_at=time.monotonic())

    async def run(self, function: Callable[..., Any], kind: Kind = Kind.COROUTINE, **declared: Any) -> How:
        return await self.execution(function, kind, **declared).run(start=True)


@pytest.fixture
def rig() -> Iterator[Rig]:
    store = Scripted()
    figures = Figures(0.05, 1.0, 1.0, 10.0, 0.3)
    renewal = Renewal(store.connect, figures)
    renewal.start()
    yield Rig(store, renewal)
    renewal.close(5)


async def well(_ctx: Context, payload: Any) -> Any:
    return payload["n"]


async def test_what_the_code_returns_is_finished_and_then_the_slots_go_back(rig: Rig) -> None:
    assert await rig.run(well) is How.DONE
    assert [call[0] for call in rig.store.calls] == ["finish", "release"]
    assert rig.store.named("finish") == [(Done(1), False)]


async def test_not_started_code_is_handed_back_as_such(rig: Rig) -> None:
    async def never(_ctx: Context, _payload: Any) -> None:
        raise AssertionError("ran")

    assert await rig.execution(never).run(start=False) is How.HANDED_BACK
    assert rig.store.named("hand_back") == [(HandedBack("NotStarted", started=False),)]
    assert rig.store.named("release")


async def test_a_finish_without_answer_is_repeated_and_the_slots_wait_for_its_answer(rig: Rig) -> None:
    rig.store.answers = {"finish": [StoreUnavailable("away"), TimeoutError(), StoreUnavailable("away")]}
    assert await rig.run(well) is How.DONE
    assert [call[0] for call in rig.store.calls] == ["finish", "finish", "finish", "finish", "release"]


async def test_a_refused_finish_is_fenced_and_its_slots_go_back(rig: Rig) -> None:
    rig.store.answers = {"finish": [LeaseLost(CLAIM)]}
    assert await rig.run(well) is How.FENCED
    assert [call[0] for call in rig.store.calls] == ["finish", "release"]


async def test_a_failed_give_back_changes_no_outcome(rig: Rig) -> None:
    rig.store.answers = {"release": [SlotsUnavailable("away")]}
    assert await rig.run(well) is How.DONE


async def test_a_result_that_can_not_be_stored_fails_the_task(rig: Rig) -> None:
    rig.store.answers = {"finish": [InvalidInput("result", 1, "is larger than 1 byte")]}
    assert await rig.run(well) is How.FAILED
    outcome = rig.store.named("finish")[1][0]
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "InvalidResult"


async def test_a_failure_is_retried_as_the_type_declares(rig: Rig) -> None:
    async def fails(_ctx: Context, _payload: Any) -> None:
        raise ValueError("no")

    assert await rig.run(fails) is How.FAILED
    assert await rig.run(fails, retry=Exponential(1)) is How.RETRIED
    assert [call[1] for call in rig.store.named("finish")] == [False, True]

    def broken(*_arguments: Any) -> RetryDecision:
        raise KeyError("a fault of the policy")

    assert await rig.run(fails, retry=broken) is How.FAILED


async def test_a_refused_effect_ends_the_execution_even_if_the_code_goes_on(rig: Rig) -> None:
    rig.store.answers = {"progress": [LeaseLost(CLAIM)]}

    async def swallows(ctx: Context, _payload: Any) -> str:
        try:
            await ctx.progress(0.1)
        except LeaseLost:
            await asyncio.sleep(3600)
        return "never"

    assert await rig.run(swallows) is How.FENCED
    assert rig.store.named("finish") == []


async def test_a_refused_renewal_ends_that_execution(rig: Rig) -> None:
    rig.store.renewal_answer = LeaseLost(CLAIM)

    async def waits(_ctx: Context, _payload: Any) -> None:
        await asyncio.sleep(3600)

    assert await rig.run(waits) is How.FENCED


async def test_silence_ends_it_and_hands_back_when_the_store_answers_again(rig: Rig) -> None:
    rig.store.renewal_answer = StoreUnavailable("away")

    async def waits(ctx: Context, _payload: Any) -> None:
        await asyncio.sleep(3600)

    assert await rig.run(waits, silence_seconds=0.3) is How.HANDED_BACK
    assert rig.store.named("hand_back") == [(HandedBack("StoreSilent", started=True),)]


async def test_effects_without_answer_are_repeated_and_an_event_keeps_its_number(rig: Rig) -> None:
    rig.store.answers = {"event": [StoreUnavailable("reply lost")], "progress": [TimeoutError()]}

    async def tells(ctx: Context, _payload: Any) -> None:
        await ctx.event("one", {"a": 1})
        await ctx.event("two")
        await ctx.progress(0.5)

    assert await rig.run(tells) is How.DONE
    assert rig.store.named("event") == [(1, "one", {"a": 1}), (1, "one", {"a": 1}), (2, "two", {})]
    assert rig.store.named("progress") == [(0.5,), (0.5,)]


async def test_an_untrusted_claim_asks_no_provider_until_a_renewal_is_confirmed(rig: Rig) -> None:
    asked: list[ProviderCall] = []

    async def call(ask: ProviderCall) -> str:
        asked.append(ask)
        return "r-1"

    async def submits(ctx: Context, _payload: Any) -> None:
        await ctx.submission("frame", provider="p", request={"mine": True}, call=call)

    rig.store.renewal_answer = StoreUnavailable("away")
    execution = rig.execution(submits, silence_seconds=60)
    await asyncio.to_thread(_wait, lambda: not execution._watched.trusted)
    running = asyncio.create_task(execution.run(start=True))
    await rig.renewal.run(asyncio.sleep, 0.2)
    assert asked == []
    assert rig.store.named("intend") == []
    rig.store.renewal_answer = None
    assert await running is How.DONE
    # The stored request goes out, whatever the code asked for this time, under the intent's key and with the claim.
    assert asked == [ProviderCall("key-1", {"stored": True}, CLAIM)]
    assert rig.store.named("reference") == [("key-1", "r-1")]


async def test_a_claim_that_loses_trust_between_intent_and_call_asks_no_provider(rig: Rig) -> None:
    asked: list[ProviderCall] = []

    async def call(ask: ProviderCall) -> str:
        asked.append(ask)
        return "r-1"

    async def submits(ctx: Context, _payload: Any) -> None:
        await ctx.submission("frame", provider="p", request={}, call=call)

    async def intend(claim: Claim, name: str, provider: str, request: Any, after: int) -> Submission:
        """The store answers, and is gone; by the time the answer is read the window is over."""
        rig.store.renewal_answer = StoreUnavailable("away")
        await asyncio.sleep(0.5)
        return await Scripted.intend(rig.store, claim, name, provider, request, after)

    rig.store.intend = intend  # type: ignore[method-assign]
    execution = rig.execution(submits, silence_seconds=60)
    running = asyncio.create_task(execution.run(start=True))
    await asyncio.wait_for(asyncio.to_thread(_wait, lambda: bool(rig.store.named("intend"))), 5)
    await rig.renewal.run(asyncio.sleep, 0.1)
    assert asked == []
    rig.store.renewal_answer = None
    assert await running is How.DONE
    assert len(asked) == 1


async def test_the_intent_is_stored_before_the_provider_is_called(rig: Rig) -> None:
    async def call(_ask: ProviderCall) -> str:
        rig.store.calls.append(("provider",))
        return "r-1"

    async def submits(ctx: Context, _payload: Any) -> None:
        await ctx.submission("frame", provider="p", request={}, call=call)

    assert await rig.run(submits) is How.DONE
    assert [call[0] for call in rig.store.calls[:3]] == ["intend", "provider", "reference"]


async def test_a_run_that_is_to_stop_asks_no_provider_for_anything_new(rig: Rig) -> None:
    began = asyncio.Event()

    async def call(_ask: ProviderCall) -> str:
        raise AssertionError("asked")

    async def submits_at_the_last_moment(ctx: Context, _payload: Any) -> None:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await ctx.submission("frame", provider="p", request={}, call=call)

    execution = rig.execution(submits_at_the_last_moment)
    running = asyncio.create_task(execution.run(start=True))
    await began.wait()
    execution.end(Ending.DRAIN_DEADLINE)
    assert await running is How.HANDED_BACK
    assert rig.store.named("intend") == []


async def test_a_refused_renewal_kills_the_code_though_the_main_loop_is_blocked(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = threading.Event()

    class Waits:
        def __init__(self) -> None:
            self.stopped = asyncio.Event()

        async def run(self) -> CodeEnd:
            await self.stopped.wait()
            return Stopped()

        def stop(self) -> None:
            self.stopped.set()

        def kill(self) -> None:
            killed.set()

    monkeypatch.setattr(Execution, "_make_runner", lambda _self: Waits())
    running = asyncio.create_task(rig.execution(well).run(start=True))
    await asyncio.sleep(0.05)
    rig.store.renewal_answer = LeaseLost(CLAIM)
    assert killed.wait(5), "the loop stands still meanwhile"
    assert await running is How.FENCED


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def test_a_known_reference_is_reattached_to_and_nothing_is_called(rig: Rig) -> None:
    rig.store.reference = "r-0"

    async def call(_ask: ProviderCall) -> str:
        raise AssertionError("called again")

    async def submits(ctx: Context, _payload: Any) -> str | None:
        return (await ctx.submission(provider="p", request={}, call=call)).reference

    assert await rig.run(submits) is How.DONE
    assert rig.store.named("finish") == [(Done("r-0"), False)]
    assert rig.store.named("intend") == [("1",)]


async def test_a_reference_is_stored_although_the_code_is_cancelled_meanwhile(rig: Rig) -> None:
    rig.store.answers = {"reference": [StoreUnavailable("away")]}
    called = asyncio.Event()

    async def call(_ask: ProviderCall) -> str:
        called.set()
        return "r-1"

    async def submits(ctx: Context, _payload: Any) -> None:
        await ctx.submission("frame", provider="p", request={}, call=call)
        await asyncio.sleep(3600)

    execution = rig.execution(submits)
    running = asyncio.create_task(execution.run(start=True))
    await called.wait()
    execution.end(Ending.DRAIN_DEADLINE)
    assert await running is How.HANDED_BACK
    assert rig.store.named("reference") == [("key-1", "r-1")] * 2


async def test_effects_of_code_left_behind_are_refused(rig: Rig) -> None:
    left: list[asyncio.Task[None]] = []

    async def leaves_a_task(ctx: Context, _payload: Any) -> None:
        async def later() -> None:
            await over.wait()
            await ctx.progress(0.9)

        left.append(asyncio.create_task(later()))

    over = asyncio.Event()
    assert await rig.run(leaves_a_task) is How.DONE
    over.set()
    with pytest.raises(LeaseLost):
        await left[0]
    assert rig.store.named("progress") == []


async def test_stubborn_code_is_reported_and_not_handed_back_until_it_stopped(rig: Rig) -> None:
    stop, began = asyncio.Event(), asyncio.Event()

    async def stubborn(_ctx: Context, _payload: Any) -> None:
        began.set()
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue

    execution = rig.execution(stubborn)
    running = asyncio.create_task(execution.run(start=True))
    await began.wait()
    execution.end(Ending.HURRY)
    try:
        await asyncio.wait_for(rig.stubborn.wait(), 5)
        assert execution.stubborn
        assert rig.store.calls == []
    finally:
        stop.set()
    assert await running is How.DONE
    assert rig.store.named("release")


async def test_a_thread_stops_at_its_next_call(rig: Rig) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def loops(ctx: SyncContext, _payload: Any) -> None:
        loop.call_soon_threadsafe(began.set)
        while True:
            ctx.progress(0.5)

    execution = rig.execution(loops, Kind.THREAD)
    running = asyncio.create_task(execution.run(start=True))
    await began.wait()
    execution.end(Ending.DRAIN_DEADLINE)
    assert await running is How.HANDED_BACK
    assert not rig.stubborn.is_set()


async def test_a_process_that_can_not_be_started_is_no_failure_of_the_task(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_memory(*_arguments: Any, **_settings: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_memory)
    assert await rig.run(well, Kind.PROCESS) is How.HANDED_BACK
    assert rig.store.named("hand_back") == [(HandedBack("NotStarted", started=False),)]


async def test_what_ends_before_the_code_begins_keeps_it_from_beginning(rig: Rig) -> None:
    async def never(_ctx: Context, _payload: Any) -> None:
        raise AssertionError("ran")

    execution = rig.execution(never)
    execution.end(Ending.HURRY)
    assert await execution.run(start=True) is How.HANDED_BACK
