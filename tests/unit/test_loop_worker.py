"""A claim that arrives after the signal is handed back as not started; a declared death takes nothing new."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from slackwater.claim import HandedBack, Identity
from slackwater.dispatch import Dispatcher
from slackwater.executor import Surroundings
from slackwater.health import Pulse
from slackwater.loop import Worker
from slackwater.renewal import Figures, Renewal
from slackwater.sdk import Context
from slackwater.shutdown import ExitCode, Standing
from slackwater.task import Kind, Registry, TaskType
from tests.unit.test_executor import CLAIMED, Scripted

OPEN = Standing(False, None, None, "Open", ended=False)


class Links:
    def __init__(self) -> None:
        self.standing = OPEN
        self.beats = 0
        self.ended: list[str] = []

    async def register(self) -> Standing:
        return self.standing

    async def recover_predecessors(self) -> int:
        return 0

    async def heartbeat(self, running: int) -> Standing:
        self.beats += 1
        return self.standing

    async def sweep(self) -> bool:
        return False

    async def end(self, reason: str) -> None:
        self.ended.append(reason)

    async def listen(self, handler: Callable[[str], None]) -> None:
        await asyncio.Event().wait()


class Rig:
    def __init__(self) -> None:
        self.links, self.store = Links(), Scripted()
        self.renewal = Renewal(self.store.connect, Figures(0.05, 1.0, 1.0, 10.0, 0.3))
        self.renewal.start()
        self.cordons: list[str] = []
        registry = Registry()
        registry.add(TaskType("t", waits, Kind.COROUTINE))
        identity = Identity("w-1", "pool", "pool", "", "pod", "pod", "node", "", ("default",), 4, ("t",))
        self.worker = Worker(
            identity, registry, self.links, Pulse(), grace_seconds=10, heartbeat_seconds=0.05, sweep_seconds=60
        )
        self.worker.cordon_self = self._cordon
        self.worker.around = Surroundings(
            writes=self.store,
            renewal=self.renewal,
            clock=time.monotonic,
            answer_seconds=1.0,
            cancel_grace_seconds=1.0,
            modules=(),
            inherit=(),
            on_stubborn=self.worker.stubborn,
            drain_deadline=self.worker.drain_deadline,
        )

    def _cordon(self, cause: str, _deadline: float | None) -> Future[None]:
        self.cordons.append(cause)
        written: Future[None] = Future()
        written.set_result(None)
        return written


async def waits(_ctx: Context, _payload: object) -> None:
    await asyncio.sleep(3600)


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(signal, "signal", lambda *_arguments: None)  # the test run keeps its own handlers
    rig = Rig()
    yield rig
    rig.renewal.close(5)


async def test_a_claim_that_arrives_after_the_signal_is_handed_back_unstarted(
    rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    rig.worker._on_signal(signal.SIGTERM, None)
    told = json.loads(capfd.readouterr().out)
    assert (told["message"], told["signal"], told["deadline_seconds"]) == ("drain started", "SIGTERM", 5.0)
    assert rig.cordons == ["Terminated"]
    assert not rig.worker.claiming()
    rig.worker.accept(CLAIMED, "scopes", time.monotonic())
    code = await asyncio.wait_for(rig.worker.run(), 5)
    assert code is ExitCode.DRAINED
    assert rig.store.named("hand_back") == [(HandedBack("NotStarted", started=False),)]
    assert rig.store.named("release")


async def test_the_second_signal_hands_back_what_runs(rig: Rig) -> None:
    rig.worker.accept(CLAIMED, "scopes", time.monotonic())
    running = asyncio.create_task(rig.worker.run())
    rig.worker._on_signal(signal.SIGTERM, None)
    await asyncio.sleep(0)
    assert not running.done()
    rig.worker._on_signal(signal.SIGTERM, None)
    assert await asyncio.wait_for(running, 5) is ExitCode.DEADLINE
    assert rig.store.named("hand_back") == [(HandedBack("SecondSignal", started=True),)]


async def test_a_signal_after_the_worker_has_left_changes_nothing(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    """A condemned worker leaves by itself, and the SIGTERM of its pod's deletion comes while it closes."""
    idle = SimpleNamespace(in_flight=0, in_doubt=0, run=asyncio.Event().wait)
    rig.worker.dispatcher = cast(Dispatcher, idle)
    rig.links.standing = Standing(True, "Rollout", None, "Open", ended=False, condemned=True)
    assert await asyncio.wait_for(rig.worker.run(), 5) is ExitCode.DRAINED

    def closed(cause: str, deadline: float | None) -> Future[None]:
        raise RuntimeError("Event loop is closed")

    rig.worker.cordon_self = closed
    rig.worker._on_signal(signal.SIGTERM, None)
    assert "drain started" not in capfd.readouterr().out
