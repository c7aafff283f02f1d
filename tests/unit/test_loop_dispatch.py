"""How a worker comes by its tasks, against scripted links: every refusal, silence and loss on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from slackwater.claim import Candidate, Claim, ClaimedTask
from slackwater.dispatch import Dispatcher, Full, Taken
from slackwater.errors import PolicyUnreadable, SlotsLost, SlotsUnavailable, StoreUnavailable
from slackwater.wake import Wake

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def candidate(channel: str = "", user: str = "alice") -> Candidate:
    return Candidate(uuid4(), 0, "render", "default", user, channel, NOW)


def claimed(asked: Candidate, token: UUID) -> ClaimedTask:
    return ClaimedTask(
        claim=Claim(asked.task_id, asked.epoch + 1, token, "w-1"),
        type=asked.type,
        queue=asked.queue,
        user_id=asked.user_id,
        channel=asked.channel,
        payload={},
        checkpoint=None,
        attempts=0,
        interruptions=0,
        trace_id="",
        lease_until=NOW,
        settlement=1,
    )


@dataclass(frozen=True)
class Looked:
    task: ClaimedTask | None
    over: bool


@dataclass
class Scripted:
    """Answers by default as a healthy world does; a test replaces one of them."""

    waiting: list[Candidate] = field(default_factory=list)
    taken: dict[UUID, UUID] = field(default_factory=dict)
    released: list[UUID] = field(default_factory=list)
    asked_without: list[frozenset[str]] = field(default_factory=list)
    rebuilt: int = 0
    rebuild_due: bool = True
    full: frozenset[str] = frozenset()
    on_candidates: Callable[[], None] = lambda: None
    on_scopes: Callable[[], None] = lambda: None
    on_acquire: Callable[[], None] = lambda: None
    on_claim: Callable[[Candidate, UUID], ClaimedTask | None] = claimed
    on_look: Callable[[Candidate, UUID], Looked] = lambda _candidate, _token: Looked(None, over=True)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def candidates(self, *, limit: int, skip_channels: frozenset[str]) -> list[Candidate]:
        self._note()
        self.asked_without.append(skip_channels)
        self.on_candidates()
        return [c for c in self.waiting if c.channel not in skip_channels][:limit]

    async def scopes(self, candidate: Candidate) -> Any:
        self.on_scopes()
        return candidate

    async def acquire(self, token: UUID, scopes: Any) -> Taken | Full:
        self._note()
        self.on_acquire()
        if scopes.channel in self.full:
            return Full("channel", scopes.channel)
        if scopes.user_id in self.full:
            return Full("user", scopes.user_id)
        self.taken[token] = scopes.task_id
        return Taken(7)

    async def claim(self, candidate: Candidate, token: UUID, generation: int) -> ClaimedTask | None:
        assert generation == 7
        self._note()
        return self.on_claim(candidate, token)

    async def look_for(self, candidate: Candidate, token: UUID) -> Looked:
        self._note()
        return self.on_look(candidate, token)

    async def release_token(self, token: UUID, scopes: Any) -> None:
        self.taken.pop(token, None)
        self.released.append(token)
        self._note()

    async def rebuild(self) -> bool:
        self.rebuilt += 1
        self._note()
        return self.rebuild_due

    def _note(self) -> None:
        self.changed.set()


class Rig:
    def __init__(self) -> None:
        self.links = Scripted()
        self.accepted: list[ClaimedTask] = []
        self.places = 4
        self.claiming = True
        self.refusals = 0
        self.wake = Wake()
        self.dispatcher = Dispatcher(
            self.links,
            self.wake,
            clock=asyncio.get_running_loop().time,
            free=lambda: self.places - len(self.accepted),
            claiming=lambda: self.claiming,
            accept=self._accept,
            claim_seconds=0.2,
            slot_seconds=0.2,
            poll_seconds=0.05,
            refused=self._refused,
        )

    def _accept(self, task: ClaimedTask, _scopes: Any, _sent_at: float) -> None:
        self.accepted.append(task)
        self.links.waiting = [c for c in self.links.waiting if c.task_id != task.claim.task_id]
        self.links.changed.set()

    def _refused(self) -> None:
        self.refusals += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.dispatcher.run())
        try:
            yield
        finally:
            task.cancel()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                self.links.changed.clear()
                await self.links.changed.wait()

    def tried(self) -> set[UUID]:
        return {task.claim.task_id for task in self.accepted}


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_waiting_tasks_are_claimed_up_to_the_free_places(rig: Rig) -> None:
    rig.links.waiting = [candidate() for _ in range(9)]
    first = [c.task_id for c in rig.links.waiting[:4]]
    async with rig.running():
        await rig.until(lambda: len(rig.accepted) == 4)
    assert [task.claim.task_id for task in rig.accepted] == first
    assert {task.claim.token for task in rig.accepted} == set(rig.links.taken)


async def test_an_unreadable_policy_takes_no_slot(rig: Rig) -> None:
    def unreadable() -> None:
        raise PolicyUnreadable("no row")

    rig.links.waiting = [candidate()]
    rig.links.on_scopes = unreadable
    async with rig.running():
        await rig.until(lambda: len(rig.links.asked_without) >= 3)
        assert rig.links.taken == {}
        assert rig.accepted == []
        rig.links.on_scopes = lambda: None
        await rig.until(lambda: len(rig.accepted) == 1)


async def test_a_full_channel_is_left_alone_while_others_are_tried(rig: Rig) -> None:
    rig.links.full = frozenset({"busy"})
    rig.links.waiting = [candidate("busy"), candidate("busy"), candidate("idle"), candidate()]
    wanted = {c.task_id for c in rig.links.waiting[2:]}
    async with rig.running():
        await rig.until(lambda: rig.tried() == wanted)
        await rig.until(lambda: frozenset({"busy"}) in rig.links.asked_without)
        rig.links.full = frozenset()
        await rig.until(lambda: len(rig.accepted) == 4)


async def test_a_full_user_hides_nobody_however_many_tasks_wait_before(rig: Rig) -> None:
    rig.links.full = frozenset({"heavy"})
    rig.links.waiting = [candidate(user="heavy") for _ in range(100)] + [candidate(user="light")]
    async with rig.running():
        await rig.until(lambda: len(rig.accepted) == 1)
    assert rig.accepted[0].user_id == "light"


async def test_every_candidate_of_a_round_is_tried(rig: Rig) -> None:
    """Refused ones take no place: the round goes on through all that were read."""
    tried: list[UUID] = []

    def refuse(asked: Candidate, _token: UUID) -> ClaimedTask | None:
        tried.append(asked.task_id)
        return None

    rig.links.on_claim = refuse
    rig.links.waiting = [candidate(user=f"u{n}") for n in range(11)]
    async with rig.running():
        await rig.until(lambda: len(rig.links.asked_without) == 2)
    assert tried[:11] == [c.task_id for c in rig.links.waiting]


async def test_a_refused_claim_gives_its_token_back_and_looks_at_the_cordon(rig: Rig) -> None:
    rig.links.waiting = [candidate()]
    rig.links.on_claim = lambda _candidate, _token: None
    async with rig.running():
        await rig.until(lambda: len(rig.links.released) >= 2)
    assert rig.accepted == []
    assert rig.refusals >= 2
    assert len(set(rig.links.released)) == len(rig.links.released)


def no_answer(_candidate: Candidate, _token: UUID) -> ClaimedTask | None:
    raise StoreUnavailable("the connection was lost")


async def test_a_claim_without_answer_that_was_made_is_run(rig: Rig) -> None:
    rig.links.waiting = [candidate()]
    looks = 0

    def look(asked: Candidate, token: UUID) -> Looked:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise StoreUnavailable("still away")
        return Looked(claimed(asked, token) if looks == 3 else None, over=False)

    rig.links.on_claim, rig.links.on_look = no_answer, look
    rig.places = 1
    async with rig.running():
        await rig.until(lambda: len(rig.accepted) == 1)
    assert rig.links.released == []
    assert rig.accepted[0].claim.token in rig.links.taken


async def test_a_claim_without_answer_keeps_its_slot_and_its_place_until_none_can_come(rig: Rig) -> None:
    rig.links.waiting = [candidate(), candidate()]
    rig.links.on_claim = no_answer
    looks: list[UUID] = []

    def not_over_yet(_candidate: Candidate, token: UUID) -> Looked:
        looks.append(token)
        return Looked(None, over=False)

    rig.links.on_look = not_over_yet
    rig.places = 1
    async with rig.running():
        await rig.until(lambda: bool(looks))
        await asyncio.sleep(0.05)
        assert rig.dispatcher.in_doubt == 1
        assert rig.links.released == []
        rig.links.on_claim = claimed
        rig.links.on_look = lambda _candidate, _token: Looked(None, over=True)
        await rig.until(lambda: len(rig.links.released) == 1)
        await rig.until(lambda: len(rig.accepted) == 1)


async def test_lost_slots_pause_claiming_and_are_rebuilt(rig: Rig) -> None:
    def lost() -> None:
        raise SlotsLost("missing")

    rig.links.waiting = [candidate()]
    rig.links.on_acquire = lost
    async with rig.running():
        await rig.until(lambda: rig.links.rebuilt >= 1)
        assert rig.accepted == []
        rig.links.on_acquire = lambda: None
        await rig.until(lambda: len(rig.accepted) == 1)


async def test_a_rebuild_that_is_not_due_yet_is_asked_for_in_growing_pauses(rig: Rig) -> None:
    def lost() -> None:
        raise SlotsLost("old")

    rig.links.waiting = [candidate()]
    rig.links.on_acquire = lost
    rig.links.rebuild_due = False
    async with rig.running():
        await rig.until(lambda: rig.links.rebuilt == 1)
        first = asyncio.get_running_loop().time()
        await rig.until(lambda: rig.links.rebuilt >= 4)
    # half of each window at least, which double from 50 ms
    assert asyncio.get_running_loop().time() - first >= (0.05 + 0.1 + 0.2) / 2


async def test_a_slot_script_without_answer_starts_nothing_and_gives_the_token_back(rig: Rig) -> None:
    def silent() -> None:
        raise SlotsUnavailable("no answer")

    rig.links.waiting = [candidate()]
    rig.links.on_acquire = silent
    async with rig.running():
        await rig.until(lambda: len(rig.links.released) >= 1)
    assert rig.accepted == []


async def test_a_signal_between_slots_and_claim_gives_the_token_back(rig: Rig) -> None:
    def signalled() -> None:
        rig.claiming = False

    rig.links.waiting = [candidate()]
    rig.links.on_acquire = signalled
    rig.links.on_claim = no_answer  # not asked: it would leave a doubt
    async with rig.running():
        await rig.until(lambda: len(rig.links.released) == 1)
    assert rig.dispatcher.in_doubt == 0
    assert rig.links.taken == {}


async def test_a_wake_up_is_followed_at_once(rig: Rig) -> None:
    async with rig.running():
        await rig.until(lambda: len(rig.links.asked_without) >= 1)
        rig.links.waiting = [candidate()]
        rig.wake.up()
        await rig.until(lambda: len(rig.accepted) == 1)
