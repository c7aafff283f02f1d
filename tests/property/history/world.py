"""One history: tasks, pods with worker processes, and those who work on them from outside (operator, sweeps, admin)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID, uuid5

import psycopg

from slackwater.claim import Claim, Ground
from slackwater.errors import SlotsUnavailable, StoreUnavailable
from slackwater.policy import Policy
from slackwater.store import admin, recovery, registration, retrying, submissions
from slackwater.sweep import ALL, run_due
from tests.property.history.provider import Provider
from tests.property.history.stage import ORDERS, Actor, Process, Stage
from tests.property.history.worker import Execution, Worker

_NAMES = UUID(int=7)
TASK = """
    WITH t AS (
        INSERT INTO slackwater.task (id, type, queue, user_id, channel, payload)
        VALUES (%(id)s, %(kind)s, 'default', %(user)s, %(channel)s, '{}')
    ), k AS (
        INSERT INTO slackwater.claim (task_id, type, queue, user_id, channel, order_key)
        VALUES (%(id)s, %(kind)s, 'default', %(user)s, %(channel)s, %(order)s)
    )
    INSERT INTO slackwater.settlement (task_id, n, user_id, reserved) VALUES (%(id)s, 1, %(user)s, 5)
"""
PLACES = (("u1", "c1"), ("u2", "c1"), ("u1", ""), ("u2", ""))
"""User and channel of the tasks, in turn."""


class World:
    pool = "pool"
    queue = "default"
    policy = Policy(
        user_pending_limit=50, system_pending_limit=50, pools={"pool": 2}, users={"u1": 1}, channels={"c1": 1}
    )

    def __init__(self, stage: Stage, sql: psycopg.AsyncConnection[Any], kinds: tuple[str, ...], pods: int) -> None:
        self.stage = stage
        self.sql = sql
        self.kinds = kinds
        self.pods = [f"pod{number}" for number in range(pods)]
        self.deleted: set[str] = set()
        self.types: dict[str, dict[str, Any]] = {
            kind: {"on_interrupt": on_interrupt, "silence_seconds": silence, "stale_seconds": 600.0}
            for kind, on_interrupt, silence in (
                ("plain", "requeue", 35.0),
                ("paid", "requeue", 600.0),
                ("kept", "hold", 35.0),
                ("once", "fail", 35.0),
            )
        }
        self.tasks: list[UUID] = []
        self.processes: list[Process] = []
        self.workers: dict[str, Worker] = {}
        self.executions: list[Execution] = []
        self.provider = Provider()
        self.writes: list[tuple[Claim, str]] = []
        """Accepted since the judge looked last."""
        self.released: list[tuple[str, bool]] = []
        """Tokens given back since then; True: by one who saw its process die."""
        self.rebuilds = 0
        self.faults: list[str] = []
        """What nobody was there to raise."""
        self._sequences: dict[str, int] = {}
        stage.on_release = lambda _actor, token: self.released.append((token, True))
        stage.on_rebuild = self._rebuilt

    async def open(self) -> None:
        async with self.sql.transaction():
            for number, kind in enumerate(self.kinds):
                user, channel = PLACES[number % len(PLACES)]
                task_id = uuid5(_NAMES, str(number))
                values = {"id": task_id, "kind": kind, "user": user, "channel": channel, "order": number}
                await self.sql.execute(TASK, values)
                self.tasks.append(task_id)
        for pod in self.pods:
            self.start(pod)
        self.stage.spawn("operator", self._operate, None)
        self.stage.spawn("admin", self._administer, None)
        self.stage.spawn("reaper", self._reap, None)
        for name in ("sweep1", "sweep2"):
            self.stage.spawn(name, self._sweep, None)
        await self.stage.settle()

    def name(self, task_id: UUID) -> str:
        return f"t{self.tasks.index(task_id)}"

    def accepted(self, claim: Claim, what: str) -> None:
        self.writes.append((claim, what))

    def acting(self) -> list[Execution]:
        return [execution for execution in self.executions if execution.acting]

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def start(self, pod: str) -> Process | None:
        """A container starts, if the pod is there and its last process, which had the lock, is gone."""
        if pod in self.deleted or any(process.alive for process in self.processes if process.pod == pod):
            return None
        process = Process(f"w{len(self.processes)}", pod)
        self.processes.append(process)
        self.workers[process.name] = Worker(self, process)
        return process

    def _rebuilt(self) -> None:
        self.rebuilds += 1

    # ---- those who work from outside; what they do next is the adversary's choice

    async def _operate(self, actor: Actor) -> None:
        while True:
            choice = (await actor.gate(ORDERS, idle=True)).choice
            act, pod = divmod(choice, len(self.pods))
            await self._quietly(self._act(actor, self.pods[pod], act % 8))

    async def _act(self, actor: Actor, pod: str, act: int) -> None:
        store = actor.store
        match act:
            case 0 | 1:
                seconds = 30 if act else None
                view = await registration.cordon(
                    store, pod, origin="operator", cause="Rollout", deadline_seconds=seconds
                )
                self._sequences[pod] = view.sequence
            case 2 if pod in self._sequences:
                await registration.call_off(store, pod, self._sequences[pod])
            case 3:
                if await registration.condemn(store, pod):
                    self.deleted.add(pod)
                    for process in [process for process in self.living() if process.pod == pod]:
                        process.alive = False
                        for one in process.actors:
                            one.kill()
            case 4 | 5:  # the kubelet says that the container ended
                for process in self.processes:
                    if not process.alive and not process.witnessed and process.pod == pod:
                        await recovery.witness(store, process.name, slots=actor.slots)
                        process.witnessed = True
            case 6:
                for seen in await recovery.running_claims(store, pod_uid=pod):
                    await recovery.take_away(store, seen, Ground.DEADLINE)
            case 7 if pod in self.deleted:
                await registration.vanish(store, [pod])
            case _:
                return

    async def _administer(self, actor: Actor) -> None:
        while True:
            choice = (await actor.gate(ORDERS, idle=True)).choice
            act, task = divmod(choice, len(self.tasks))
            await self._quietly(self._admin(actor, self.tasks[task], act % 5))

    async def _admin(self, actor: Actor, task_id: UUID, act: int) -> None:
        store = actor.store
        try:
            match act:
                case 0:
                    await admin.cancel(store, task_id, who="user")
                case 1:
                    await admin.finalize(store, task_id, who="admin")
                case 2 | 3:
                    await retrying.retry(store, task_id, who="user")
                case _:  # the provider calls back
                    for job in [job for job in self.provider.jobs.values() if job.outcome is not None]:
                        await submissions.store_outcome(store, job.key, job.outcome)
        except admin.StateStands:
            return

    async def _reap(self, actor: Actor) -> None:
        """A sweep of its own, which keeps what it read for as long as the adversary likes."""
        while True:
            choice = (await actor.gate(ORDERS, idle=True)).choice
            await self._quietly(self._take(actor, stale=choice % 4 == 0))

    async def _take(self, actor: Actor, *, stale: bool) -> None:
        for seen in await recovery.running_claims(actor.store, expired=not stale):
            if stale and (seen.read_at - seen.active_at).total_seconds() <= 600:
                continue
            if await recovery.take_away(actor.store, seen, Ground.STALE if stale else Ground.EXPIRED) and not stale:
                await recovery.give_back(actor.store, actor.slots, seen)

    async def _sweep(self, actor: Actor) -> None:
        while True:
            choice = (await actor.gate(ORDERS, idle=True)).choice
            await self._quietly(self._round(actor, ALL[choice % 4]))

    async def _round(self, actor: Actor, kind: Any) -> None:
        report = await run_due(actor.store, actor.slots, kinds=[kind])
        self.faults += [e for e in report.errors if "StoreUnavailable" not in e and "SlotsUnavailable" not in e]

    async def sweep_everything(self, actor: Actor) -> None:
        """What every process does, when nothing disturbs it."""
        while True:
            await actor.gate(ORDERS, idle=True)
            await run_due(actor.store, actor.slots)

    @staticmethod
    async def _quietly(act: Coroutine[Any, Any, None]) -> None:
        try:
            await act
        except (StoreUnavailable, SlotsUnavailable):
            return
