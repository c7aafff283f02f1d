"""The harness: a worker of one test, without a process of its own. Rule: claims and runs as a worker does (dispatcher,
slots, renewal, executor); it serves a queue of its own, so that several may share a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Self
from uuid import UUID

from slackwater.admission import Limits
from slackwater.aftercare import care_forever
from slackwater.claim import ClaimedTask, Identity
from slackwater.dispatch import Dispatcher
from slackwater.executor import Execution, Surroundings
from slackwater.links import Known, ThreadLinks, connect_main, connect_thread
from slackwater.renewal import Figures, Renewal
from slackwater.settings import Constants, StoreSettings
from slackwater.store import Store
from slackwater.store.admission import Submit, submit
from slackwater.store.sql import as_json, sql
from slackwater.task import REGISTRY, load
from slackwater.testing.bench import LOOK_SECONDS, TellingLinks, Told, servers
from slackwater.testing.run import WAIT_SECONDS, HarnessError, TaskRun
from slackwater.trust import Ending
from slackwater.wake import Wake

CONCURRENCY = 4
_PLENTY = Limits(user_pending=10_000, system_pending=1_000_000)
_SAVE = sql("UPDATE {s}.task SET checkpoint = CAST(:checkpoint AS jsonb) WHERE id = :task_id")
_NOW = sql("""
    UPDATE {s}.claim SET claimable_from = clock_timestamp()
    WHERE task_id = :task_id AND state = 'queued' AND old_token IS NULL
""")


class TaskHarness:
    """Runs tasks in process. `modules` declare them, by name or imported; tasks declared elsewhere before count too."""

    def __init__(
        self,
        *modules: str | ModuleType,
        database_url: str | None = None,
        redis_url: str | None = None,
        skip_waits: bool = True,
        constants: Constants | None = None,
    ) -> None:
        """`database_url`, `redis_url`: servers to use, shared with other harnesses if you like; None: embedded ones.

        `constants`: by default the protocol's, except that claims are renewed every half second, so that a lost one is
        noticed while the test waits.
        """
        self._modules = tuple(m if isinstance(m, str) else m.__name__ for m in modules)
        self._urls = (database_url, redis_url)
        self._skip_waits = skip_waits
        self._constants = constants or Constants(renew_seconds=0.5, cancel_grace_seconds=5)
        self._queue = f"test-{secrets.token_hex(6)}"
        self._stack = AsyncExitStack()
        self._executions: dict[asyncio.Task[None], Execution] = {}
        self._stubborn = False
        self._paused = 0
        self._wake = Wake()
        self._store: Store | None = None
        self._around: Surroundings | None = None
        self.told = Told()

    async def __aenter__(self) -> Self:
        try:
            where = await self._stack.enter_async_context(servers(*self._urls))
            await self._stack.enter_async_context(self._working(where))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    @property
    def store(self) -> Store:
        if self._store is None:
            raise HarnessError("use it in `async with`")
        return self._store

    async def run(self, type_: str, payload: Any = None, *, seconds: float = WAIT_SECONDS, **more: Any) -> Any:
        """Run one task to its end and return its result; `more` as for `start`. Raises TaskEnded."""
        return await (await self.start(type_, payload, **more)).result(seconds=seconds)

    async def start(
        self, type_: str, payload: Any = None, *, saved: Any = None, user_id: str = "author", channel: str = ""
    ) -> TaskRun:
        """Submit one task; it starts at once. `saved`: the checkpoint that an earlier run left."""
        if REGISTRY.get(type_) is None:
            raise HarnessError(f"no task type {type_!r}; known are {', '.join(REGISTRY.names)}")
        request = Submit(type=type_, user_id=user_id, payload=payload, queue=self._queue, channel=channel)
        with self.claiming_paused():
            task_id = (await submit(self.store, request, _PLENTY)).task_id
            if saved is not None:
                async with self.store.transaction() as connection:
                    await connection.execute(_SAVE, {"task_id": task_id, "checkpoint": as_json(saved)})
        return TaskRun(self, task_id)

    # ---- for TaskRun

    @contextmanager
    def claiming_paused(self) -> Iterator[None]:
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            self._wake.up()

    def execution_of(self, task_id: UUID) -> Execution | None:
        return next((e for e in self._executions.values() if e.claimed.claim.task_id == task_id), None)

    async def over(self, execution: Execution, seconds: float) -> None:
        """Until that run has ended, slots and all."""

        async def ended() -> bool | None:
            return True if execution not in self._executions.values() or self._stubborn else None

        if not await self.told.until(ended, seconds) or self._stubborn:
            raise HarnessError("the code did not stop when it was cancelled: a worker would leave with exit code 4")

    # ---- the worker

    @asynccontextmanager
    async def _working(self, where: StoreSettings) -> AsyncIterator[None]:
        registry, c = load(self._modules), self._constants
        identity = self._identity(registry.names)
        known, connected = Known(), list[ThreadLinks]()
        figures = Figures(
            renew_seconds=c.renew_seconds,
            answer_seconds=c.claim_timeout_seconds,
            slot_answer_seconds=c.slot_timeout_seconds,
            slot_patience_seconds=c.slot_silence_seconds,
            trust_seconds=c.trust_seconds,
        )
        renewal = Renewal(partial(connect_thread, where, c, known, identity.pod_uid, connected), figures)
        async with connect_main(where, c, 5) as (store, slots):
            links = TellingLinks(
                store,
                slots,
                told=self.told,
                known=known,
                identity=identity,
                declarations=registry.declarations(),
                listen_url=where.listen_url,
            )
            await links.register()
            renewal.start()
            self._store = store
            self._around = self._surroundings(links, renewal)
            side = [
                asyncio.create_task(self._dispatcher(links).run()),
                asyncio.create_task(self._sweep(links)),
                asyncio.create_task(care_forever(store, registry, seconds=LOOK_SECONDS)),
            ]
            try:
                yield
            finally:
                self._paused += 1
                await self._stop_executions()
                for task in side:
                    task.cancel()
                await asyncio.gather(*side, return_exceptions=True)
                renewal.close(2.0)
                await links.end("drained")

    def _accept(self, claimed: ClaimedTask, scopes: Any, sent_at: float) -> None:
        declared = REGISTRY.get(claimed.type)
        assert declared is not None
        assert self._around is not None
        execution = Execution(claimed, declared, scopes, self._around, sent_at=sent_at)
        task = asyncio.create_task(self._execute(execution))
        self._executions[task] = execution
        self.told.tell()

    async def _execute(self, execution: Execution) -> None:
        try:
            await execution.run(start=True)
            if self._skip_waits:
                async with self.store.transaction() as connection:
                    await connection.execute(_NOW, {"task_id": execution.claimed.claim.task_id})
        finally:
            task = asyncio.current_task()
            assert task is not None
            del self._executions[task]
            self._wake.up()
            self.told.tell()

    async def _stop_executions(self) -> None:
        running = dict(self._executions)
        for execution in running.values():
            execution.end(Ending.HURRY)
        if running and (await asyncio.wait(running, timeout=2 * self._constants.cancel_grace_seconds))[1]:
            for task in self._executions:
                task.cancel()

    async def _sweep(self, links: TellingLinks) -> None:
        """Above all the slots' marker, which everybody renews."""
        while True:
            with contextlib.suppress(Exception):  # servers may be going down; the next round looks again
                await links.sweep()
            await asyncio.sleep(self._constants.sweep_expired_seconds)

    def _told_stubborn(self) -> None:
        self._stubborn = True
        self.told.tell()

    def _surroundings(self, links: TellingLinks, renewal: Renewal) -> Surroundings:
        return Surroundings(
            writes=links,
            renewal=renewal,
            clock=time.monotonic,
            answer_seconds=self._constants.claim_timeout_seconds,
            cancel_grace_seconds=self._constants.cancel_grace_seconds,
            modules=self._modules,
            inherit=(),
            on_stubborn=self._told_stubborn,
            drain_deadline=lambda: None,
        )

    def _dispatcher(self, links: TellingLinks) -> Dispatcher:
        return Dispatcher(
            links,
            self._wake,
            clock=time.monotonic,
            free=lambda: CONCURRENCY - len(self._executions),
            claiming=lambda: not self._paused,
            accept=self._accept,
            claim_seconds=self._constants.claim_timeout_seconds,
            slot_seconds=self._constants.slot_timeout_seconds,
            poll_seconds=0.5,
            refused=self._wake.up,
        )

    def _identity(self, types: tuple[str, ...]) -> Identity:
        if not types:
            raise HarnessError(f"no task is declared in {', '.join(self._modules) or 'no module'}")
        name = self._queue
        return Identity(
            worker_id=f"w-{name}",
            pool_uid=name,
            pool_name=name,
            namespace="",
            pod_uid=name,
            pod_name=name,
            node="",
            revision="test",
            queues=(self._queue,),
            concurrency=CONCURRENCY,
            task_types=types,
        )
