"""The stage on which a history is played: who may take which step, and what the adversary does to it.

An actor is an ordinary coroutine on the product's own functions. Its store and its slots are gated: before each
transaction and each script, and (when it creeps) before each further statement and the commit, it waits until the
adversary lets it go on, with a fault or without. So it can be delayed between any two statements, for as long as one
likes, while it holds its locks or not. An actor that waits for somebody's lock is recognised in `pg_stat_activity`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import psycopg
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.errors import SlotsUnavailable, StoreUnavailable
from slackwater.settings import Constants
from slackwater.slots import Scope, Slots
from slackwater.store import Store
from tests.property.history.clock import Clock

T = TypeVar("T")
P = ParamSpec("P")
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
HANGS_SECONDS = 20.0
ORDERS = "orders"
"""The gate of those outside, who do something only when told."""


class Late(Exception):
    """The request is under way, but whoever sent it has given up waiting."""


@dataclass(frozen=True)
class Go:
    """How an actor goes on. One fault at most."""

    choice: int = 0
    creep: bool = False
    """Stop before every statement of the transaction, not only before the next transaction."""
    lose: bool = False
    """It takes effect, and the reply is lost."""
    cut: bool = False
    """It is not sent; within a transaction: rolled back."""
    late: bool = False
    """No answer comes, and it takes effect later, or never."""


def _always() -> bool:
    return True


@dataclass(eq=False)
class Process:
    """What dies and pauses together."""

    name: str
    pod: str
    alive: bool = True
    paused: bool = False
    postgres_away: bool = False
    redis_away: bool = False
    witnessed: bool = False
    actors: list[Actor] = field(default_factory=list)


class Actor:
    """One thread of statements."""

    def __init__(self, stage: Stage, name: str, process: Process | None) -> None:
        self.stage = stage
        self.name = name
        self.process = process
        self.store = GatedStore(stage.store, self)
        self.slots = GatedSlots(stage.redis, stage.constants, self)
        self.at: str | None = None
        self.idle = False
        self.until: Callable[[], bool] = _always
        self.held = 0
        """For so many rounds of everybody it does nothing."""
        self.open = False
        """Has a transaction, with its locks."""
        self.killed = False
        self.task: asyncio.Task[None] | None = None
        self.can_be_late = False
        self._go: asyncio.Future[Go] | None = None
        self._last = Go()

    @property
    def flying(self) -> bool:
        return self.at is None and self.task is not None and not self.task.done()

    @property
    def waits_for_orders(self) -> bool:
        return self.at == ORDERS

    @property
    def within(self) -> bool:
        """Stands within a transaction."""
        return self.open and self.waits

    @property
    def waits(self) -> bool:
        return self.at is not None and self.task is not None and not self.task.done()

    def release(self, go: Go) -> None:
        assert self._go is not None
        self.at, self._last = None, go
        self._go.set_result(go)

    def kill(self) -> None:
        """It goes no further than it is; its transaction is rolled back."""
        self.killed = True
        if self.at is not None and self.task is not None:
            self.at = None
            self.task.cancel()

    async def gate(self, what: str, *, idle: bool = False, until: Callable[[], bool] | None = None) -> Go:
        """Wait for the adversary. `idle`: nothing of the product follows at once; `until`: nothing to do before."""
        if self.killed:
            raise asyncio.CancelledError
        self._go = asyncio.get_running_loop().create_future()
        self.at, self.idle, self.until = what, idle, until or _always
        self.stage.arrived.set()
        try:
            return await self._go
        finally:
            self.at = None

    async def ask(self, function: Callable[Concatenate[Store, P], Awaitable[T]], *args: P.args, **named: P.kwargs) -> T:
        """One of the product's functions, which may also come late."""
        self.can_be_late = True
        try:
            return await function(self.store, *args, **named)
        except Late:
            self.stage.ghost(self, lambda store: function(store, *args, **named))
            raise StoreUnavailable("given up") from None
        finally:
            self.can_be_late = False

    # ---- what the gated store and slots call

    async def begin(self) -> None:
        go = await self.gate("begin")
        if go.late and self.can_be_late:
            raise Late
        if go.cut or go.late or (self.process is not None and self.process.postgres_away):
            raise StoreUnavailable("cut off")
        self.stage.statements += 1

    async def inner(self, what: str) -> None:
        if self.killed:
            raise asyncio.CancelledError
        if not self._last.creep:
            return
        lose = self._last.lose
        go = await self.gate(what)
        if lose and not go.lose:
            self._last = Go(go.choice, go.creep, lose=True)
        if go.cut or go.late or (self.process is not None and self.process.postgres_away):
            raise StoreUnavailable("cut off within a transaction")
        self.stage.statements += 1

    def replied(self) -> None:
        if self._last.lose:
            raise StoreUnavailable("reply lost")


class Gated:
    """A connection whose second and later statements have gates."""

    def __init__(self, connection: AsyncConnection, actor: Actor) -> None:
        self._connection = connection
        self._actor = actor
        self._begun = False

    async def execute(self, statement: Any, values: Any = None) -> Any:
        if self._begun:
            await self._actor.inner("statement")
        self._begun = True
        return await self._connection.execute(statement, values)


class GatedStore(Store):
    def __init__(self, store: Store, actor: Actor) -> None:
        super().__init__(store._engine, store.constants)
        self._actor = actor

    @asynccontextmanager
    async def transaction(self, *statements: str, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
        await self._actor.begin()
        self._actor.open = True
        try:
            async with super().transaction(*statements, seconds=seconds) as connection:
                if statements:
                    await self._actor.inner("statement")
                yield cast(AsyncConnection, Gated(connection, self._actor))
                await self._actor.inner("commit")
        finally:
            self._actor.open = False
        self._actor.replied()


class GatedSlots(Slots):
    def __init__(self, redis: Redis, constants: Constants, actor: Actor) -> None:
        super().__init__(redis, constants=constants)
        self._actor = actor

    async def _run(self, op: str, generation: int, wanted: Sequence[Scope], *arguments: int | str) -> list[Any]:
        actor = self._actor
        go = await actor.gate(f"redis {op}")
        if go.cut or (actor.process is not None and actor.process.redis_away):
            raise SlotsUnavailable("cut off")
        if go.late:
            actor.stage.late_script(actor, lambda: self._send(op, generation, wanted, *arguments))
            raise SlotsUnavailable("given up")
        reply = await self._send(op, generation, wanted, *arguments)
        if go.lose:
            raise SlotsUnavailable("reply lost")
        return reply

    async def _send(self, op: str, generation: int, wanted: Sequence[Scope], *arguments: int | str) -> list[Any]:
        stage = self._actor.stage
        stage.statements += 1
        shift = stage.clock.redis_shift_ms
        if op == "release":
            stage.on_release(self._actor, str(arguments[0]))
        if op == "touch":
            arguments = (int(arguments[0]) - shift, *arguments[1:])
        reply = await super()._run(op, generation, wanted, *arguments)
        if op == "look" and reply[0] == "OK":
            reply = ["OK", reply[1] + shift]
        if op == "rebuild":
            stage.on_rebuild()
        return reply


class Stage:
    """All actors, and the one place where time goes on."""

    def __init__(
        self, store: Store, redis: Redis, watcher: psycopg.AsyncConnection[psycopg.rows.TupleRow], clock: Clock
    ) -> None:
        self.store = store
        self.redis = redis
        self.constants = store.constants
        self.clock = clock
        self.arrived = asyncio.Event()
        self.actors: list[Actor] = []
        self.statements = 0
        self.on_release: Callable[[Actor, str], None] = lambda _actor, _token: None
        self.on_rebuild: Callable[[], None] = lambda: None
        self.trace: list[str] = []
        self._watcher = watcher
        self._ghosts = 0

    def spawn(self, name: str, body: Callable[[Actor], Coroutine[Any, Any, None]], process: Process | None) -> Actor:
        actor = Actor(self, name, process)
        self.actors.append(actor)
        if process is not None:
            process.actors.append(actor)

        async def run() -> None:
            try:
                await body(actor)
            finally:
                self.arrived.set()

        actor.task = asyncio.create_task(run(), name=name)
        return actor

    def ghost(self, of: Actor, function: Callable[[Store], Awaitable[object]]) -> None:
        """What was sent and given up: the server may get to it, whatever becomes of the sender."""

        async def body(actor: Actor) -> None:
            try:
                await function(actor.store)
            except Exception as error:
                self.trace.append(f"{actor.name}: {type(error).__name__}")

        self._ghosts += 1
        self.spawn(f"{of.name}~{self._ghosts}", body, None)

    def late_script(self, of: Actor, send: Callable[[], Awaitable[object]]) -> None:
        async def body(actor: Actor) -> None:
            if not (await actor.gate("redis, late")).cut:
                await send()

        self._ghosts += 1
        self.spawn(f"{of.name}~{self._ghosts}", body, None)

    def ready(self) -> list[Actor]:
        """Who can take a step."""
        return [
            a
            for a in self.actors
            if a.waits and a.until() and not a.held and not (a.process is not None and a.process.paused)
        ]

    async def step(self, actor: Actor, go: Go) -> None:
        """Let it go on to its next gate, its end, or somebody's lock."""
        flags = " ".join(name for name in ("creep", "lose", "cut", "late") if getattr(go, name))
        self.trace.append(f"{actor.name} [{actor.at}] {go.choice} {flags}")
        actor.release(go)
        await self.settle()

    async def settle(self) -> None:
        began = time.monotonic()
        while flying := [actor for actor in self.actors if actor.flying]:
            self.arrived.clear()
            held = any(actor.within for actor in self.actors)
            try:
                async with asyncio.timeout(0.005 if held else HANGS_SECONDS):
                    await self.arrived.wait()
            except TimeoutError:
                if held and await self._waiting() >= len(flying):
                    return
                assert time.monotonic() - began < HANGS_SECONDS, f"{[actor.name for actor in flying]} hang"
        for actor in self.actors:
            if actor.task is not None and actor.task.done() and not actor.task.cancelled():
                actor.task.result()
        self.actors = [actor for actor in self.actors if actor.task is not None and not actor.task.done()]

    async def let_go(self) -> None:
        """Nobody stands within a transaction any more: the server's own time-outs ended them."""
        for _ in range(1000):
            held = [actor for actor in self.actors if actor.within]
            if not held and not any(actor.flying for actor in self.actors):
                return
            if held:
                held[0].release(Go(cut=True))
            await self.settle()
        raise AssertionError("transactions without end")

    async def kill(self, process: Process) -> None:
        process.alive = False
        for actor in process.actors:
            actor.kill()
        await self.settle()

    async def _waiting(self) -> int:
        row = await (await self._watcher.execute(_WAITING)).fetchone()
        return 0 if row is None else int(row[0])
