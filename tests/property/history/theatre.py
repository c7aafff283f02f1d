"""Where histories are played: one PostgreSQL and one Redis for all of them, emptied in between, and one event loop."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from redis.asyncio import Redis

from slackwater import migrations
from slackwater.schema import metadata
from slackwater.settings import Constants
from slackwater.store import Store
from tests.integration.servers import Postgres, Valkey
from tests.property.history.clock import Clock, install
from tests.property.history.judge import Judge
from tests.property.history.stage import Actor, Go, Stage
from tests.property.history.world import World

T = TypeVar("T")
_PRESUMED = {"slot_generation", "sweep", "timeline", "policy"}
_EMPTY = "".join(f"DELETE FROM {table};" for table in reversed(metadata.sorted_tables) if table.name not in _PRESUMED)
_RESET = """
    UPDATE slackwater.slot_generation SET generation = 0, raised_at = '-infinity';
    UPDATE slackwater.sweep SET last = '-infinity', quiet_until = NULL;
    UPDATE slackwater.timeline SET name = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), changed_at = '-infinity';
    UPDATE shifted.clock SET shift = '0';
"""


class Theatre:
    """The servers. Use it as a context manager."""

    def __enter__(self) -> Theatre:
        self._directories = [Path(tempfile.mkdtemp(prefix=prefix)) for prefix in ("swpg", "swrd")]
        self._postgres, self._valkey = Postgres(self._directories[0]), Valkey(self._directories[1])
        self._postgres.start()
        self._valkey.start()
        install(self._postgres.url())
        migrations.upgrade(self._postgres.url())
        self._runner = asyncio.Runner()
        self.run(self._connect())
        self.statements = 0
        self.histories = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._disconnect())
        self._runner.close()
        self._postgres.stop()
        self._valkey.stop()
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _connect(self) -> None:
        url = self._postgres.url()
        self.store = Store.connect(url, constants=Constants(), pool_size=40)
        self.redis = Redis.from_url(self._valkey.url)
        self.watcher = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def _disconnect(self) -> None:
        await self.watcher.close()
        await self.redis.aclose()
        await self.store.close()

    def play(self, kinds: tuple[str, ...], pods: int) -> History:
        history = History(self)
        self.run(history.open(kinds, pods))
        return history

    async def empty(self) -> None:
        await self.watcher.execute(_EMPTY + _RESET)
        await self.redis.flushall()


class History:
    """One history: the adversary's moves, each followed by the judge."""

    def __init__(self, theatre: Theatre) -> None:
        self.theatre = theatre
        self.clock = Clock(theatre.watcher, theatre.redis)
        self.stage = Stage(theatre.store, theatre.redis, theatre.watcher, self.clock)

    async def open(self, kinds: tuple[str, ...], pods: int) -> None:
        await self.theatre.empty()
        self.world = World(self.stage, self.theatre.watcher, kinds, pods)
        self.judge = Judge(self.world, self.theatre.watcher, self.theatre.redis)
        await self.world.open()
        for _ in range(12):
            await self.everybody([3])
        await self.order("sweep1", 1, times=8)

    # ---- moves

    async def step(self, pick: int, go: Go, times: int = 1) -> None:
        """One actor that is at something goes on, by so many gates."""
        if not (busy := [actor for actor in self.stage.ready() if not actor.waits_for_orders]):
            return
        await self._on(busy[pick % len(busy)], go, times)

    async def _on(self, actor: Actor, go: Go, times: int) -> None:
        for _ in range(times):
            if actor in self.stage.ready() and not actor.waits_for_orders:
                await self._step(actor, go)

    async def order(self, name: str, choice: int, times: int = 1) -> None:
        """One of those outside begins something, and gets so far."""
        for actor in self.stage.ready():
            if actor.name == name and actor.waits_for_orders:
                await self._step(actor, Go(choice))
                await self._on(actor, Go(choice), times)

    async def everybody(self, choices: list[int]) -> None:
        """Each that is at something takes a step without a fault; nobody left to take one: somebody comes back."""
        if not any(not process.paused for process in self.world.living()):
            self.pause(choices[0], False)
            await self.start(choices[0])
        for actor in self.stage.actors:
            actor.held = max(0, actor.held - 1)
        for number, actor in enumerate(self.stage.ready()):
            if actor in self.stage.ready() and not actor.waits_for_orders:
                await self._step(actor, Go(choices[number % len(choices)]))

    async def hold(self, pick: int, rounds: int, choice: int, *, flush: bool, seconds: float) -> None:
        """One actor is delayed where it stands, while the world goes on around it."""
        await self.step(pick, Go(choice), times=choice % 5)
        if busy := [actor for actor in self.stage.ready() if not actor.waits_for_orders]:
            busy[pick % len(busy)].held = rounds + 1
        if flush:
            await self.redis_loses_everything()
        if seconds:
            await self.passes(seconds)
        for _ in range(rounds):
            await self.everybody([choice, choice + 1, choice + 5])

    async def lapse(self, pick: int, choice: int) -> None:
        """A process stands still until its leases are over, while the others go on; a sweep finds them."""
        self.pause(pick, True)
        for seconds in (25, 25):
            await self.passes(seconds)
            await self.order("sweep1", 1, times=8)
            await self.everybody([choice])
        await self.order("reaper", 1, times=3 + choice % 9)
        for _ in range(choice % 12):
            await self.everybody([choice, choice + 1, choice + 5])
        if choice % 3:
            self.pause(pick, False)
            await self.everybody([choice])

    async def _step(self, actor: Actor, go: Go) -> None:
        idle = actor.idle
        await self.stage.step(actor, go)
        if not idle:
            await self.judge.check()

    async def passes(self, seconds: float) -> None:
        if seconds >= 5:
            await self.stage.let_go()
            await self.judge.check()
        self.stage.trace.append(f"{seconds} s pass")
        await self.clock.passes(seconds)
        await self.judge.check(redis_lost=True)

    async def redis_steps(self, seconds: float) -> None:
        self.stage.trace.append(f"Redis's clock steps by {seconds} s")
        await self.clock.redis_steps(seconds)
        await self.judge.check(redis_lost=True)

    async def redis_loses_everything(self) -> None:
        self.stage.trace.append("Redis loses its data")
        await self.theatre.redis.flushall()
        await self.judge.check(redis_lost=True)

    async def kill(self, pick: int) -> None:
        if living := self.world.living():
            process = living[pick % len(living)]
            self.stage.trace.append(f"{process.name} is killed")
            await self.stage.kill(process)
            await self.judge.check()

    async def start(self, pick: int) -> None:
        self.world.start(self.world.pods[pick % len(self.world.pods)])
        await self.stage.settle()

    def pause(self, pick: int, paused: bool) -> None:
        if living := [process for process in self.world.living() if process.paused is not paused]:
            process = living[pick % len(living)]
            self.stage.trace.append(f"{process.name} {'pauses' if paused else 'goes on'}")
            process.paused = paused

    def cut(self, pick: int, postgres: bool, redis: bool) -> None:
        if living := self.world.living():
            process = living[pick % len(living)]
            self.stage.trace.append(f"{process.name} is cut off from postgres={postgres} redis={redis}")
            process.postgres_away, process.redis_away = postgres, redis

    async def sigterm(self, pick: int) -> None:
        workers = [self.world.workers[process.name] for process in self.world.living()]
        if workers := [worker for worker in workers if not worker.stopping]:
            workers[pick % len(workers)].sigterm()
            await self.stage.settle()

    # ---- the end

    async def close(self, *, heal: bool) -> None:
        """Kill whoever is left; then, if `heal`, nothing fails any more and every task has to end."""
        try:
            await self.stage.let_go()
            for process in self.world.living():
                await self.stage.kill(process)
            for actor in list(self.stage.actors):
                actor.held = 0
                actor.kill()
            await self.stage.settle()
            if heal:
                await self.judge.check()
                await self._heal()
        finally:
            for actor in self.stage.actors:
                if actor.task is not None:
                    actor.task.cancel()
            await asyncio.gather(
                *(actor.task for actor in self.stage.actors if actor.task is not None), return_exceptions=True
            )
            self.theatre.statements += self.stage.statements
            self.theatre.histories += 1

    async def _heal(self) -> None:
        world, stage = self.world, self.stage
        world.pods.append("healthy")
        world.start("healthy")
        stage.spawn("sweeper", world.sweep_everything, None)
        await stage.settle()
        for _ in range(30):
            for _ in range(12):
                for actor in stage.ready():
                    if actor.waits and not actor.waits_for_orders:
                        await stage.step(actor, Go(choice=0 if actor.at == "poll" else 7))
            world.writes.clear()  # several were made since the judge looked last
            await self.judge.check()
            if not [k for k in self.judge.seen.claims.values() if k["state"] in ("queued", "running")]:
                break
            await self.passes(14)
            for actor in stage.ready():
                if actor.name == "sweeper":
                    await stage.step(actor, Go())
        else:
            stuck = [k for k in self.judge.seen.claims.values() if k["state"] in ("queued", "running")]
            raise AssertionError(f"stuck: {stuck}")
        await self.passes(Constants().fresh_slot_seconds + 1)
        assert not any(self.judge.seen.members.values()), f"slots left over: {self.judge.seen.members}"
