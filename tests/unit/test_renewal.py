"""The renewal thread against scripted answers: what is an answer, what ends an execution, and what never does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from slackwater.claim import Claim
from slackwater.errors import LeaseLost, StoreUnavailable
from slackwater.renewal import Figures, Renewal, SlotAnswer
from slackwater.trust import Ending, Watched

FIGURES = Figures(
    renew_seconds=0.06,
    answer_seconds=0.5,
    slot_answer_seconds=0.5,
    slot_patience_seconds=0.2,
    trust_seconds=0.2,
)
CLAIM, OTHER = Claim(uuid4(), 3, uuid4(), "w-1"), Claim(uuid4(), 1, uuid4(), "w-1")


class Scripted:
    """Links whose answers a test sets; each call wakes whoever waits."""

    def __init__(self) -> None:
        self.claim_answer: BaseException | None = None
        self.slot_answer: SlotAnswer | Exception = SlotAnswer.HELD
        self.claims: list[bool] = []
        self.by_claim: Counter[Claim] = Counter()
        self.hanging = False
        self.slots = 0
        self.raised: list[str] = []
        self._called = threading.Condition()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Scripted]:
        yield self

    def _note(self) -> None:
        with self._called:
            self._called.notify_all()

    async def renew_claim(self, claim: Claim, *, evidence: bool) -> None:
        self.claims.append(evidence)
        self.by_claim[claim] += 1
        self._note()
        while self.hanging:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        if self.claim_answer is not None:
            raise self.claim_answer

    async def renew_slot(self, claim: Claim, scopes: object) -> SlotAnswer:
        assert scopes == "scopes"
        self.slots += 1
        self._note()
        if isinstance(self.slot_answer, Exception):
            raise self.slot_answer
        return self.slot_answer

    async def raise_generation(self, reason: str) -> None:
        self.raised.append(reason)
        self._note()

    def blocking_until(self, holds: Callable[[], bool], seconds: float = 5.0) -> None:
        """Blocks the calling thread, the main loop's: what is waited for must come from the renewal thread."""
        with self._called:
            assert self._called.wait_for(holds, seconds)

    async def until(self, holds: Callable[[], bool], seconds: float = 5.0) -> None:
        await asyncio.to_thread(self.blocking_until, holds, seconds)


class Rig:
    def __init__(self) -> None:
        self.links = Scripted()
        self.leap = 0.0
        self.renewal = Renewal(self.links.connect, FIGURES, clock=self.now)
        self.endings: list[Ending] = []
        self.ended = asyncio.Event()

    def now(self) -> float:
        return time.monotonic() + self.leap

    def watch(self, claim: Claim = CLAIM, *, silence_seconds: float = 60.0, ahead: float = 0.0) -> Watched:
        """`ahead`: so much later comes the claim's own renewal."""
        loop = asyncio.get_running_loop()

        def on_end(ending: Ending) -> None:
            self.endings.append(ending)
            loop.call_soon_threadsafe(self.ended.set)

        sent_at = self.now() + ahead
        return self.renewal.watch(claim, "scopes", sent_at=sent_at, silence_seconds=silence_seconds, on_end=on_end)

    async def wait_ended(self) -> list[Ending]:
        await asyncio.wait_for(self.ended.wait(), 5)
        return self.endings


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    rig.renewal.start()
    yield rig
    rig.renewal.close(5)


async def test_a_blocked_main_loop_stops_no_renewal(rig: Rig) -> None:
    rig.watch()
    rig.links.blocking_until(lambda: len(rig.links.claims) >= 5 and rig.links.slots >= 5)


async def test_a_main_thread_burning_bytecode_stops_no_renewal(rig: Rig) -> None:
    rig.watch()
    until = time.monotonic() + 5
    while len(rig.links.claims) < 5:
        assert time.monotonic() < until


async def test_a_refusal_ends_the_execution(rig: Rig) -> None:
    rig.links.claim_answer = LeaseLost(CLAIM)
    watched = rig.watch()
    assert await rig.wait_ended() == [Ending.LEASE_LOST]
    with pytest.raises(LeaseLost):
        await watched.trust()


async def test_a_refusal_cancels_nothing_while_finishing(rig: Rig) -> None:
    watched = rig.watch()
    watched.finishing = True
    rig.links.claim_answer = LeaseLost(CLAIM)
    seen = len(rig.links.claims)
    await rig.links.until(lambda: len(rig.links.claims) > seen)
    slots = rig.links.slots
    await rig.links.until(lambda: rig.links.slots > slots)
    assert rig.endings == []


@pytest.mark.parametrize(
    "error", [StoreUnavailable("read-only"), TimeoutError(), OSError("reset"), RuntimeError("a driver's own")]
)
async def test_errors_are_no_answer_and_renewals_go_on(rig: Rig, error: Exception) -> None:
    rig.links.claim_answer = error
    watched = rig.watch()
    await rig.links.until(lambda: len(rig.links.claims) >= 3)
    rig.links.claim_answer = None
    before = watched.sent_at
    seen = len(rig.links.claims)
    await rig.links.until(lambda: len(rig.links.claims) >= seen + 2)
    assert watched.sent_at > before
    assert rig.endings == []


async def test_a_query_that_can_not_even_be_given_up_holds_up_no_later_renewal(rig: Rig) -> None:
    """A driver that waits for a server that is stopped in its tracks."""
    rig.links.hanging = True
    watched = rig.watch()
    await rig.links.until(lambda: len(rig.links.claims) == 1)
    before = watched.sent_at
    rig.links.hanging = False
    await rig.links.until(lambda: len(rig.links.claims) >= 3)
    assert watched.sent_at > before


async def test_without_answers_effects_wait_and_go_on_when_one_comes(rig: Rig) -> None:
    rig.links.claim_answer = StoreUnavailable("away")
    watched = rig.watch()
    await rig.links.until(lambda: not watched.trusted)
    waiting = asyncio.create_task(watched.trust())
    seen = len(rig.links.claims)
    await rig.links.until(lambda: len(rig.links.claims) >= seen + 2)
    assert not waiting.done()
    rig.links.claim_answer = None
    await asyncio.wait_for(waiting, 5)
    assert watched.trusted


async def test_silence_ends_the_execution_at_its_types_limit(rig: Rig) -> None:
    rig.links.claim_answer = StoreUnavailable("away")
    began = time.monotonic()
    rig.watch(silence_seconds=0.4)
    assert await rig.wait_ended() == [Ending.SILENCE]
    assert time.monotonic() - began >= 0.4


async def test_a_pause_of_the_process_itself_is_not_the_stores_silence(rig: Rig) -> None:
    """SIGSTOP for longer than `silence`: one renewal gets its chance before anybody is judged."""
    watched = rig.watch(silence_seconds=5.0)
    await rig.links.until(lambda: len(rig.links.claims) >= 1)
    rig.leap = 30.0
    seen = len(rig.links.claims)
    await rig.links.until(lambda: len(rig.links.claims) >= seen + 2)
    assert rig.endings == []
    assert watched.trusted


async def test_silence_that_goes_on_after_a_pause_ends_the_execution(rig: Rig) -> None:
    rig.watch(silence_seconds=5.0)
    await rig.links.until(lambda: len(rig.links.claims) >= 1)
    rig.links.claim_answer = StoreUnavailable("away")
    rig.leap = 30.0
    assert await rig.wait_ended() == [Ending.SILENCE]


async def test_evidence_goes_with_one_renewal_and_is_kept_when_that_had_no_answer(rig: Rig) -> None:
    rig.links.claim_answer = StoreUnavailable("away")
    watched = rig.watch()
    watched.show()
    await rig.links.until(lambda: len(rig.links.claims) >= 2)
    assert all(rig.links.claims[:2])
    rig.links.claim_answer = None
    seen = len(rig.links.claims)
    await rig.links.until(lambda: len(rig.links.claims) >= seen + 3)
    assert rig.links.claims[-1] is False


@pytest.mark.parametrize("answer", [SlotAnswer.LOST, SlotAnswer.DENIED, OSError("no Redis")])
async def test_no_answer_of_redis_ends_an_execution(rig: Rig, answer: SlotAnswer | Exception) -> None:
    rig.links.slot_answer = answer
    rig.watch()
    await rig.links.until(lambda: rig.links.slots >= 4)
    assert rig.endings == []


async def test_a_denied_slot_raises_the_generation_after_a_renewal_that_held(rig: Rig) -> None:
    rig.links.slot_answer = SlotAnswer.DENIED
    rig.watch()
    await rig.links.until(lambda: rig.links.raised == ["slot denied"] or len(rig.links.raised) > 1)
    assert rig.links.claims


async def test_a_denied_slot_raises_nothing_when_the_claim_is_refused(rig: Rig) -> None:
    rig.links.slot_answer = SlotAnswer.DENIED
    rig.links.claim_answer = LeaseLost(CLAIM)
    rig.watch(ahead=60)
    await rig.wait_ended()
    assert rig.links.raised == []


async def test_a_denied_slot_that_is_being_given_back_raises_nothing(rig: Rig) -> None:
    watched = rig.watch()
    watched.giving_back = True
    rig.links.slot_answer = SlotAnswer.DENIED
    seen = rig.links.slots
    await rig.links.until(lambda: rig.links.slots >= seen + 3)
    assert rig.links.raised == []


async def test_a_slot_not_renewed_for_its_patience_raises_the_generation(rig: Rig) -> None:
    rig.links.slot_answer = OSError("no Redis")
    rig.watch()
    await rig.links.until(lambda: bool(rig.links.raised))
    assert rig.links.raised[0] == "slot not renewed"


async def test_after_forget_nothing_is_renewed(rig: Rig) -> None:
    rig.renewal.forget(rig.watch())
    await rig.renewal.run(asyncio.sleep, 0)  # the thread's loop is past the forgetting
    seen = rig.links.by_claim[CLAIM]
    rig.watch(OTHER)
    await rig.links.until(lambda: rig.links.by_claim[OTHER] >= 4)
    assert rig.links.by_claim[CLAIM] == seen


async def test_a_renewal_confirms_the_moment_it_was_sent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late its answer came."""

    async def answers_late(_claim: Claim, *, evidence: bool) -> None:
        sent.append(rig.now())
        rig.leap += 10.0

    sent: list[float] = []
    monkeypatch.setattr(rig.links, "renew_claim", answers_late)
    watched = rig.watch()
    began = watched.sent_at
    for _ in range(500):
        if watched.sent_at != began:
            break
        await asyncio.sleep(0.01)
    assert began < watched.sent_at <= sent[-1]


def test_trust_counts_from_the_sending_of_the_last_confirmed_renewal() -> None:
    async def scenario() -> None:
        now = 100.0
        watched = Watched(
            CLAIM, clock=lambda: now, trust_seconds=35, silence_seconds=60, sent_at=100.0, on_end=lambda _: None
        )

        def at(instant: float) -> tuple[bool, bool]:
            nonlocal now
            now = instant
            return watched.trusted, watched.silent

        assert at(135.0) == (True, False)
        assert at(135.1) == (False, False)
        watched.confirm(120.0)  # sent at 120, answered late
        assert at(155.0) == (True, False)
        assert at(155.1) == (False, False)
        watched.confirm(110.0)  # an older one, answered after it, adds nothing and takes nothing
        assert at(155.0) == (True, False)
        assert at(155.1) == (False, False)
        assert at(180.1) == (False, True)

    asyncio.run(scenario())


def test_the_first_ending_stands_but_a_refusal_overrides() -> None:
    async def scenario() -> None:
        seen: list[Ending] = []
        watched = Watched(
            CLAIM, clock=lambda: 0.0, trust_seconds=35, silence_seconds=35, sent_at=0.0, on_end=seen.append
        )
        assert watched.end(Ending.DRAIN_DEADLINE)
        assert not watched.end(Ending.HARD_TIMEOUT)
        assert watched.end(Ending.LEASE_LOST)
        assert not watched.end(Ending.SILENCE)
        assert seen == [Ending.DRAIN_DEADLINE, Ending.LEASE_LOST]

    asyncio.run(scenario())
