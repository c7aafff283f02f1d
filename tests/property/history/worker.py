"""A worker process as an actor of the history: the runtime's steps on the real store, slots, judgement and trust.

It follows `dispatch`, `executor`, `renewal` and `effects` statement by statement, without their waits: how long
anything takes is the adversary's business. It never heeds what it has heard of its cordon: the store has to refuse it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from uuid import UUID, uuid4

from slackwater.claim import Candidate, Claim, ClaimedTask, Failed, Identity, OnInterrupt, Submission
from slackwater.errors import LeaseLost, SlotsUnavailable, StoreUnavailable
from slackwater.judging import judge
from slackwater.links import Known, MainLinks, ThreadLinks
from slackwater.renewal import SlotAnswer
from slackwater.retry import NEVER, RetryDecision
from slackwater.runners import CodeEnd, Raised, Returned, Stopped
from slackwater.slots import Lost, Scope, Taken, scopes
from slackwater.store import Store, claiming, registration, submissions, writing
from slackwater.trust import Ending, Watched
from tests.property.history.stage import Actor, Process

if TYPE_CHECKING:
    from tests.property.history.world import World

T = TypeVar("T")
P = ParamSpec("P")
PACE_SECONDS = 5.0
CONCURRENCY = 2


class StopAsked(Exception):
    """The code notices that it is to stop."""


class Worker:
    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.worker_id = process.name
        self.known = Known()
        self.executions: list[Execution] = []
        self.doubts = 0
        self.stopping = False
        self.identity = Identity(
            self.worker_id,
            world.pool,
            world.pool,
            "ns",
            process.pod,
            process.pod,
            "node",
            "r1",
            queues=(world.queue,),
            concurrency=CONCURRENCY,
            task_types=tuple(world.types),
        )
        world.stage.spawn(self.worker_id, self._run, process)

    def links(self, actor: Actor) -> MainLinks:
        return MainLinks(
            actor.store,
            actor.slots,
            known=self.known,
            identity=self.identity,
            declarations=self.world.types,
            listen_url="",
        )

    def thread_links(self, actor: Actor) -> ThreadLinks:
        return ThreadLinks(actor.store, actor.slots, self.known, self.process.pod)

    def sigterm(self) -> None:
        self.stopping = True

        async def cordon(actor: Actor) -> None:
            async def write() -> None:
                await registration.cordon(
                    actor.store, self.process.pod, origin="worker", cause="Terminated", deadline_seconds=30
                )

            await until_answered(write)

        self.world.stage.spawn(f"{self.worker_id}.term", cordon, self.process)

    async def _run(self, actor: Actor) -> None:
        links = self.links(actor)
        await until_answered(links.register)
        await until_answered(links.recover_predecessors)
        while not (self.stopping and not self.executions and not self.doubts):
            if self.stopping or len(self.executions) + self.doubts >= CONCURRENCY:
                await actor.gate("full", idle=True, until=self._to_do)
                continue
            try:
                ended = (await links.heartbeat(len(self.executions))).ended
                if not ended:
                    await self._claim_one(actor)
            except (StoreUnavailable, SlotsUnavailable):
                continue
        await until_answered(lambda: links.end("drained"))

    def _to_do(self) -> bool:
        busy = len(self.executions) + self.doubts
        return busy == 0 if self.stopping else busy < CONCURRENCY

    async def _claim_one(self, actor: Actor) -> None:
        found = await claiming.candidates(
            actor.store, queues=self.identity.queues, types=self.identity.task_types, limit=4
        )
        choice = (await actor.gate("choose", idle=True)).choice
        if not found or self.stopping:
            return
        candidate, token = found[choice % len(found)], uuid4()
        wanted = scopes(
            pool_uid=self.world.pool,
            channel=candidate.channel,
            user_id=candidate.user_id,
            policy=self.world.policy,
        )
        under = self.known.generation
        try:
            answer = await actor.slots.acquire(token, wanted, under)
        except SlotsUnavailable:
            await self._release(actor, token, wanted)
            return
        if isinstance(answer, Lost):
            await self.links(actor).rebuild()
            return
        if not isinstance(answer, Taken):
            return
        sent_at = self.world.stage.clock.monotonic()
        try:
            claimed = await actor.ask(
                claiming.claim, candidate, worker_id=self.worker_id, token=token, generation=under
            )
        except StoreUnavailable:
            self._doubt(candidate, token, wanted, sent_at)
            return
        if claimed is None:
            await self._release(actor, token, wanted)
        else:
            self.executions.append(Execution(self, claimed, wanted, sent_at))

    def _doubt(self, candidate: Candidate, token: UUID, wanted: tuple[Scope, ...], sent_at: float) -> None:
        self.doubts += 1

        async def resolve(actor: Actor) -> None:
            while True:
                try:
                    found = await claiming.find_token(actor.store, candidate, token)
                except StoreUnavailable:
                    continue
                if found.task is not None:
                    self.executions.append(Execution(self, found.task, wanted, sent_at))
                    break
                if found.over:
                    await self._release(actor, token, wanted)
                    break
                again = self.world.stage.clock.monotonic() + 1
                await actor.gate("look again", idle=True, until=partial(self._reached, again))
            self.doubts -= 1

        self.world.stage.spawn(f"{self.worker_id}.doubt", resolve, self.process)

    def _reached(self, instant: float) -> bool:
        return self.world.stage.clock.monotonic() >= instant

    async def _release(self, actor: Actor, token: UUID, held: tuple[Scope, ...]) -> None:
        try:
            await actor.slots.release(token, held)
        except SlotsUnavailable:
            return  # expiry heals it


class Execution:
    """One run of a task: its code, the renewal of its claim, the renewal of its slots."""

    def __init__(self, worker: Worker, claimed: ClaimedTask, held: tuple[Scope, ...], sent_at: float) -> None:
        self.worker = worker
        self.world = worker.world
        self.claimed = claimed
        self.claim: Claim = claimed.claim
        self.held = held
        self.coding = True
        self._slot_asked = sent_at
        self.watched = Watched(
            self.claim,
            clock=self.world.stage.clock.monotonic,
            trust_seconds=self.world.stage.constants.trust_seconds,
            silence_seconds=self.world.types[claimed.type]["silence_seconds"],
            sent_at=sent_at,
            on_end=lambda _ending: None,
        )
        name = f"{worker.worker_id}.{self.world.name(self.claim.task_id)}.{self.claim.epoch}"
        spawn = self.world.stage.spawn
        self.world.executions.append(self)
        spawn(f"{name}.code", self._run, worker.process)
        self._keepers = [
            spawn(f"{name}.claim", self._keep_claim, worker.process),
            spawn(f"{name}.slot", self._keep_slot, worker.process),
        ]

    @property
    def acting(self) -> bool:
        """It may have effects at any moment, if it is not paused."""
        return self.worker.process.alive and self.coding and self.watched.trusted

    # ---- the code

    async def _run(self, actor: Actor) -> None:
        end: CodeEnd
        try:
            end = await self._code(actor)
        except LeaseLost as error:
            end = Raised("LeaseLost", str(error), None, lease_lost=True)
        except StopAsked:
            end = Stopped()
        self.coding = False
        outcome = judge(self.watched.ending, end)
        self.watched.finishing = True
        if self.watched.ending is Ending.LEASE_LOST:
            outcome = None
        retry = NEVER
        if isinstance(outcome, Failed) and self.claimed.attempts < 2:
            choice = (await actor.gate("retry?", idle=True)).choice
            retry = [NEVER, RetryDecision(0.0, "at once"), RetryDecision(20.0, "later")][choice % 3]
        while outcome is not None:
            try:
                await actor.ask(writing.finish, self.claim, outcome, retry=retry, on_interrupt=self._on_interrupt())
                self.world.accepted(self.claim, "finish")
            except LeaseLost:
                pass
            except StoreUnavailable:
                continue
            break
        self.watched.giving_back = True
        for keeper in self._keepers:
            keeper.kill()
        await self.worker._release(actor, self.claim.token, self.held)
        self.worker.executions.remove(self)

    def _on_interrupt(self) -> OnInterrupt:
        return OnInterrupt(self.world.types[self.claimed.type]["on_interrupt"])

    async def _code(self, actor: Actor) -> CodeEnd:
        claim, counter = self.claim, 0
        while (choice := (await actor.gate("code", idle=True)).choice % 8) < 4:
            counter += 1
            match choice:
                case 0:
                    await self._write(actor, writing.add_event, claim, counter, "frame", {})
                case 1:
                    await self._write(actor, writing.progress, claim, min(1.0, counter / 8))
                case 2:
                    saved = {"epoch": claim.epoch, "at": counter}
                    await self._write(actor, writing.checkpoint, claim, saved)
                case _:
                    self.watched.show()
        if choice == 4:
            return Raised("Boom", "it broke", None, lease_lost=False)
        if self.claimed.type in ("plain", "once"):
            return Returned({"epoch": claim.epoch})
        return await self._paid(actor)

    async def _paid(self, actor: Actor) -> CodeEnd:
        """Ask the provider until a job of it succeeds, or one has failed and that is enough."""
        claim, after, request = self.claim, 0, {"epoch": self.claim.epoch}
        while True:
            asked = await self._write(actor, submissions.intend, claim, "render", "stub", request, after=after)
            if asked.reference is None and asked.outcome is None:
                failed = await self._call(actor, asked)
                if failed:
                    return Raised("ProviderError", "no answer from the provider", None, lease_lost=False)
            outcome = asked.outcome
            if outcome is None:
                outcome = await self._poll(actor, asked.key)
                await self._write(actor, submissions.resolve, claim, "render", asked.n, outcome)
            if outcome["ok"]:
                return Returned({"epoch": claim.epoch, "reference": outcome["reference"]})
            if asked.n >= 3 or (await actor.gate("again?", idle=True)).choice % 2:
                return Raised("RenderFailed", "the provider gave up", None, lease_lost=False)
            after = asked.n

    async def _call(self, actor: Actor, asked: Submission) -> bool:
        """True: the provider's answer, if it gave one, is not known here."""
        await self._trusted(actor)
        go = await actor.gate("provider call")
        provider = self.world.provider

        def call() -> str:
            return provider.call(asked.task_id, asked.name, asked.n, asked.key, asked.request)

        if go.cut:
            return True
        if go.late:

            async def later() -> None:
                call()

            self.world.stage.late_script(actor, later)
            return True
        reference = call()
        if go.lose:
            return True
        await until_answered(lambda: submissions.store_reference(actor.store, asked.key, reference))
        return False

    async def _poll(self, actor: Actor, key: str) -> dict[str, object]:
        provider = self.world.provider
        while True:
            if self.watched.ending is not None:
                raise StopAsked
            choice = (await actor.gate("poll", idle=True)).choice % 4
            if choice < 2:
                provider.end(key, ok=choice == 0)
            if (outcome := provider.jobs[key].outcome) is not None:
                return outcome

    async def _write(
        self,
        actor: Actor,
        write: Callable[Concatenate[Store, P], Awaitable[T]],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        while True:
            await self._trusted(actor)
            sent_at = self.world.stage.clock.monotonic()
            try:
                value = await actor.ask(write, *args, **named)
            except LeaseLost:
                self.watched.refuse()
                raise
            except StoreUnavailable:
                continue
            self.watched.confirm(sent_at)
            self.world.accepted(self.claim, "write")
            return value

    async def _trusted(self, actor: Actor) -> None:
        watched = self.watched
        while not watched.trusted:
            if watched.ending is not None:
                break
            await actor.gate(
                "not trusted",
                idle=True,
                until=lambda: watched.trusted or watched.ending is not None or watched.silent,
            )
            if watched.silent and watched.ending is None:
                watched.end(Ending.SILENCE)
        if watched.ending is not None:
            raise StopAsked

    # ---- what keeps it alive

    async def _keep_claim(self, actor: Actor) -> None:
        clock = self.world.stage.clock.monotonic
        while True:
            await actor.gate("pace", idle=True, until=lambda: clock() >= self.watched.sent_at + PACE_SECONDS)
            if await self._renew(actor) is None:
                return

    async def _renew(self, actor: Actor) -> bool | None:
        evidence = self.watched.take_evidence()
        sent_at = self.world.stage.clock.monotonic()
        try:
            await actor.ask(writing.renew, self.claim, evidence=evidence)
        except LeaseLost:
            self.watched.refuse()
            return None
        except StoreUnavailable:
            return False
        self.watched.confirm(sent_at)
        self.world.accepted(self.claim, "renew")
        return True

    async def _keep_slot(self, actor: Actor) -> None:
        clock, watched, links = self.world.stage.clock.monotonic, self.watched, self.worker.thread_links(actor)
        while watched.ending is not Ending.LEASE_LOST:
            await actor.gate("pace", idle=True, until=lambda: clock() >= self._slot_asked + PACE_SECONDS)
            self._slot_asked = sent_at = clock()
            try:
                answer = await links.renew_slot(self.claim, self.held)
            except (SlotsUnavailable, StoreUnavailable):
                if clock() - watched.slot_confirmed_at > self.world.stage.constants.slot_silence_seconds:
                    await self._raise_if_held(actor, links)
                continue
            if answer is SlotAnswer.HELD:
                watched.slot_confirmed_at = sent_at
            elif answer is SlotAnswer.DENIED and not watched.giving_back:
                await self._raise_if_held(actor, links)

    async def _raise_if_held(self, actor: Actor, links: ThreadLinks) -> None:
        watched = self.watched
        if watched.giving_back or watched.finishing or watched.ending is not None:
            return
        if not await self._renew(actor) or watched.giving_back:
            return
        try:
            await links.raise_generation("slot")
        except (SlotsUnavailable, StoreUnavailable):
            return


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """No answer is asked again; each time is a gate."""
    while True:
        try:
            return await call()
        except (StoreUnavailable, SlotsUnavailable):
            await asyncio.sleep(0)
