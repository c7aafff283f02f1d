"""The runtime's ports, bound to the store and the slots. Rule: adapters decide nothing; each belongs to one event loop.

`MainLinks` serves the worker's loop, `ThreadLinks` the renewal thread with connections of its own. What both know of
the slots' generation is one number in `Known`, written by whoever read it last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from slackwater.claim import (
    Candidate,
    Claim,
    ClaimedTask,
    Done,
    Failed,
    HandedBack,
    Identity,
    Submission,
    submission_key,
)
from slackwater.dispatch import Full, Taken
from slackwater.errors import SlotsLost, SlotsUnavailable, StoreUnavailable
from slackwater.logging import logger
from slackwater.redis_client import redis_client
from slackwater.renewal import SlotAnswer
from slackwater.retry import RetryDecision
from slackwater.schema import WAKE_CHANNEL
from slackwater.settings import Constants, StoreSettings
from slackwater.shutdown import Standing
from slackwater.slots import Denied, Exists, Renewed, Scope, Slots, scopes
from slackwater.slots import Full as SlotsFull
from slackwater.slots import Taken as SlotsTaken
from slackwater.store import Store, claiming, generation, recovery, registration, submissions, writing
from slackwater.store.generation import Restored
from slackwater.store.policies import policy_cache
from slackwater.store.url import plain_url
from slackwater.sweep import run_due
from slackwater.task import TaskType
from slackwater.wake import listen

log = logger("slackwater.links")
THREAD_CONNECTIONS = 3
"""Renewals are short; one that got no answer may hold its connection for seconds, and must not hold up the next."""


@dataclass
class Known:
    generation: int = 0


class MainLinks:
    def __init__(
        self,
        store: Store,
        slots: Slots,
        *,
        known: Known,
        identity: Identity,
        declarations: Mapping[str, dict[str, Any]],
        listen_url: str,
    ) -> None:
        self._store = store
        self._slots = slots
        self._known = known
        self._me = identity
        self._declarations = declarations
        self._listen_url = listen_url
        self._policy = policy_cache(store)

    # ---- the worker's own life

    async def register(self) -> Standing:
        me = await registration.register(self._store, self._me, self._declarations)
        self._known.generation = await generation.read_generation(self._store)
        now = await self._store.now()
        left = None if me.deadline is None else (me.deadline - now).total_seconds()
        return Standing(me.cordoned, me.cause, left, "", ended=False, condemned=me.condemned)

    async def recover_predecessors(self) -> int:
        """The pod's lock is ours: whoever else registered for this pod is dead, and its tasks need no waiting."""
        taken = 0
        for worker_id in await registration.predecessors(self._store, self._me.pod_uid, worker_id=self._me.worker_id):
            found = await recovery.witness(self._store, worker_id, slots=self._slots)
            log.info("predecessor is dead", predecessor=worker_id, taken_back=found)
            taken += found
        return taken

    async def heartbeat(self, running: int) -> Standing:
        beat = await registration.heartbeat(self._store, self._me.worker_id, running)
        self._known.generation = max(self._known.generation, beat.generation)
        cordon = beat.cordon
        if cordon is None or not cordon.cordoned:
            return Standing(False, None, None, beat.admission, beat.ended)
        left = None if cordon.deadline is None else (cordon.deadline - beat.now).total_seconds()
        return Standing(True, cordon.cause, left, beat.admission, beat.ended, cordon.condemned)

    async def sweep(self) -> bool:
        report = await run_due(self._store, self._slots)
        return bool(report.ran)

    async def end(self, reason: str) -> None:
        await registration.end_worker(self._store, self._me.worker_id, reason)

    async def listen(self, handler: Callable[[str], None]) -> None:
        def told(queue: str) -> None:
            if queue in ("", *self._me.queues):
                handler(queue)

        await listen(plain_url(self._listen_url), {WAKE_CHANNEL: told})

    # ---- claiming

    async def candidates(self, *, limit: int, skip_channels: frozenset[str]) -> list[Candidate]:
        return await claiming.candidates(
            self._store,
            queues=self._me.queues,
            types=self._me.task_types,
            limit=limit,
            skip_channels=skip_channels,
        )

    async def scopes(self, candidate: Candidate) -> tuple[Scope, ...]:
        policy = await self._policy.get()
        return scopes(pool_uid=self._me.pool_uid, channel=candidate.channel, user_id=candidate.user_id, policy=policy)

    async def acquire(self, token: UUID, wanted: tuple[Scope, ...]) -> Taken | Full:
        under = self._known.generation
        match await self._slots.acquire(token, wanted, under):
            case SlotsTaken():
                return Taken(under)
            case SlotsFull(scope):
                return Full(scope.kind.value, scope.name)
            case Exists():
                raise SlotsUnavailable("a fresh token was there already")
            case lost:
                raise SlotsLost(lost.reason)

    async def claim(self, candidate: Candidate, token: UUID, under: int) -> ClaimedTask | None:
        return await claiming.claim(self._store, candidate, worker_id=self._me.worker_id, token=token, generation=under)

    async def look_for(self, candidate: Candidate, token: UUID) -> claiming.Found:
        return await claiming.find_token(self._store, candidate, token)

    async def release_token(self, token: UUID, held: tuple[Scope, ...]) -> None:
        await self._slots.release(token, held)

    async def rebuild(self) -> bool:
        """False: not yet, since it was tried a moment ago."""
        return await _restore(self._store, self._slots, self._known) is not Restored.WAIT

    # ---- an execution's writes

    async def progress(self, claim: Claim, fraction: float) -> None:
        await writing.progress(self._store, claim, fraction)

    async def add_event(self, claim: Claim, counter: int, kind: str, data: dict[str, Any]) -> None:
        await writing.add_event(self._store, claim, counter, kind, data)

    async def checkpoint(self, claim: Claim, data: Any) -> None:
        await writing.checkpoint(self._store, claim, data)

    async def intend(self, claim: Claim, name: str, provider: str, request: Any, after: int) -> Submission:
        return await submissions.intend(self._store, claim, name, provider, request, after=after)

    async def store_reference(self, key: str, reference: str) -> None:
        await submissions.store_reference(self._store, key, reference)

    async def resolve(self, claim: Claim, name: str, n: int, outcome: Any) -> None:
        await submissions.resolve(self._store, claim, name, n, outcome)

    async def late_outcome(self, claim: Claim, name: str, n: int, outcome: Any) -> None:
        await submissions.store_outcome(self._store, submission_key(claim.task_id, name, n), outcome)

    async def finish(self, claim: Claim, outcome: Done | Failed, retry: RetryDecision) -> str:
        return (await writing.finish(self._store, claim, outcome, retry=retry)).value

    async def hand_back(self, claim: Claim, outcome: HandedBack, declared: TaskType) -> str:
        state = await writing.hand_back(
            self._store,
            claim,
            reason=outcome.reason,
            started=outcome.started,
            checkpoint=outcome.checkpoint,
            on_interrupt=declared.on_interrupt,
        )
        return state.value

    async def release(self, claim: Claim, held: tuple[Scope, ...]) -> None:
        await self._slots.release(claim.token, held)


class ThreadLinks:
    """The renewal thread's own connections."""

    def __init__(self, store: Store, slots: Slots, known: Known, pod_uid: str) -> None:
        self._store = store
        self._slots = slots
        self._known = known
        self._pod_uid = pod_uid

    async def renew_claim(self, claim: Claim, *, evidence: bool) -> None:
        await writing.renew(self._store, claim, evidence=evidence)

    async def renew_slot(self, claim: Claim, held: tuple[Scope, ...]) -> SlotAnswer:
        match await self._slots.renew(claim.token, held, self._known.generation):
            case Renewed():
                return SlotAnswer.HELD
            case Denied():
                return SlotAnswer.DENIED
            case _:
                self._known.generation = await generation.read_generation(self._store)
                return SlotAnswer.LOST

    async def raise_generation(self, reason: str) -> None:
        log.warning("slots are to be rebuilt", reason=reason)
        await _restore(self._store, self._slots, self._known, denied_under=self._known.generation)

    async def cordon(self, cause: str, deadline: float | None) -> None:
        """Until the store has answered: whatever happens to the worker then, its pod claims nothing more."""
        pause = 0.2
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                await registration.cordon(
                    self._store, self._pod_uid, origin="worker", cause=cause, deadline_seconds=left
                )
            except StoreUnavailable as error:
                log.warning("cordon not written yet", cause=str(error))
            else:
                log.info("cordon written", reason=cause)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)


async def _restore(store: Store, slots: Slots, known: Known, *, denied_under: int | None = None) -> Restored:
    # Looked at before the store is asked, whose lock keeps the whole fleet from claiming: a Redis that does not
    # answer this process can't be restored by it.
    await slots.look(known.generation)
    restored = await generation.restore(store, slots, denied_under=denied_under)
    known.generation = await generation.read_generation(store)
    if restored is not Restored.WAIT:
        log.info("slots restored", outcome=restored.value, generation=known.generation)
    return restored


@asynccontextmanager
async def connect_main(
    where: StoreSettings, constants: Constants, pool_size: int
) -> AsyncIterator[tuple[Store, Slots]]:
    store = Store.connect(where.database_url.get_secret_value(), constants=constants, pool_size=pool_size)
    redis = redis_client(where.redis_url.get_secret_value(), constants)
    try:
        yield store, Slots(redis, prefix=where.slot_prefix, constants=constants)
    finally:
        await redis.aclose()
        await store.close()


@asynccontextmanager
async def connect_thread(
    where: StoreSettings, constants: Constants, known: Known, pod_uid: str, connected: list[ThreadLinks]
) -> AsyncIterator[ThreadLinks]:
    """Also appended to `connected`: the main thread posts work to it."""
    async with connect_main(where, constants, THREAD_CONNECTIONS) as (store, slots):
        links = ThreadLinks(store, slots, known, pod_uid)
        connected.append(links)
        yield links
