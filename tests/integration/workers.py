"""Real worker processes on scaled constants, their log lines as signals, and the provider's log as the judge.

Rule: a test waits for a line, a row or a call, with a deadline; it never sleeps and hopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy import TextClause, text

from samples.render.stub import Books, Server, serve
from slackwater.admission import Limits
from slackwater.errors import StoreUnavailable
from slackwater.settings import Constants
from slackwater.store import Store
from slackwater.store.admission import Submit, submit

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
Line = dict[str, Any]

SCALED = Constants(
    lease_seconds=3,
    renew_seconds=1,
    trust_seconds=2.3,
    slot_seconds=5,
    slot_silence_seconds=2.7,
    claim_timeout_seconds=2,
    slot_timeout_seconds=1,
    candidate_age_seconds=1.5,
    statement_timeout_seconds=1.5,
    lock_timeout_seconds=1.5,
    idle_timeout_seconds=1.5,
    sweep_expired_seconds=0.4,
    sweep_touch_seconds=1,
    marker_age_seconds=4,
    raise_seconds=1,
    expiry_gap_seconds=30,
    heartbeat_seconds=0.7,
    cancel_grace_seconds=1.5,
    failover_pause_seconds=45,
)


@pytest.fixture
def constants() -> Constants:
    return SCALED


@pytest.fixture(name="bench")
async def with_bench(
    store: Store, redis: Redis, postgres_url: str, redis_url: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    stub = Stub()
    stub.start()
    environment = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "RENDER_URL": stub.url}
    bench = Bench(store, redis, environment, stub, tmp_path)
    try:
        yield bench
    finally:
        await bench.close()
        stub.close()


class Stub:
    """The provider, in a thread of the test's process."""

    def __init__(self) -> None:
        self._server: Server = serve("127.0.0.1", 0)
        self.books: Books = self._server.RequestHandlerClass.books  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def calls(self, what: str, task: UUID) -> list[Line]:
        with self.books.lock:
            return [entry for entry in self.books.log if entry["what"] == what and entry["task"] == str(task)]

    async def called(self, what: str, task: UUID, times: int = 1, seconds: float = 15) -> list[Line]:
        async def there() -> list[Line] | None:
            calls = self.calls(what, task)
            return calls if len(calls) >= times else None

        return await until(f"{times} calls {what!r} of {task}", there, seconds)


async def until(what: str, ask: Callable[[], Awaitable[T | None]], seconds: float = 15) -> T:
    """The first answer that is not None and not False; fails by name at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await ask()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.02)


@dataclass
class WorkerProcess:
    """`slackwater worker` as a process of its own; its lines are read as they come."""

    process: asyncio.subprocess.Process
    pod_uid: str
    lines: list[Line]
    raw: list[str]
    reading: asyncio.Task[None]

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def line(self, message: str, seconds: float = 15, **wanted: Any) -> Line:
        async def there() -> Line | None:
            for line in self.lines:
                if line.get("message") == message and all(line.get(k) == v for k, v in wanted.items()):
                    return line
            if self.process.returncode is not None and self.reading.done():
                raise AssertionError(f"ended with {self.process.returncode} before {message!r}: {self.tail()}")
            return None

        try:
            return await until(f"the line {message!r} {wanted}", there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None

    def said(self, message: str) -> bool:
        return any(line.get("message") == message for line in self.lines)

    async def exit(self, seconds: float = 15) -> int:
        try:
            async with asyncio.timeout(seconds):
                code = await self.process.wait()
                await self.reading
        except TimeoutError:
            raise AssertionError(f"did not exit within {seconds:g} s\n{self.tail()}") from None
        return code

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.send_signal(signal.SIGCONT)
        await self.process.wait()
        # What a task left behind may hold the pipe open; nobody waits for that.
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self.reading, 2)

    def tail(self) -> str:
        return "\n".join(self.raw[-40:])


class Bench:
    """Store, Redis, provider and worker processes of one test."""

    def __init__(self, store: Store, redis: Redis, environment: dict[str, str], stub: Stub, directory: Path) -> None:
        self.store = store
        self.redis = redis
        self.stub = stub
        self.directory = directory
        self._environment = environment
        self.workers: list[WorkerProcess] = []

    async def worker(
        self,
        *,
        pod_uid: str | None = None,
        run_dir: Path | None = None,
        environment: dict[str, str] | None = None,
        ready: bool = True,
        **settings: Any,
    ) -> WorkerProcess:
        pod_uid = pod_uid or f"pod-{uuid4()}"
        variables = {
            **os.environ,
            **self._environment,
            **{f"SLACKWATER_{name.upper()}": str(value) for name, value in SCALED.model_dump().items()},
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "SLACKWATER_POOL_UID": "pool-1",
            "SLACKWATER_POOL_NAME": "pool",
            "SLACKWATER_POD_UID": pod_uid,
            "SLACKWATER_TASKS": "samples.render.tasks,samples.render.faults,tests.integration.worker_tasks",
            "SLACKWATER_HEALTH_PORT": "0",
            "SLACKWATER_RUN_DIR": str(run_dir or self._new_directory()),
            "SLACKWATER_TERMINATION_LOG": str(self.directory / "termination-log"),
            "SLACKWATER_POLL_SECONDS": "0.3",
            **{f"SLACKWATER_{name.upper()}": str(value) for name, value in settings.items()},
            **(environment or {}),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "slackwater.entry",
            "worker",
            env=variables,
            cwd=self.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=2**20,
        )
        lines: list[Line] = []
        raw: list[str] = []
        worker = WorkerProcess(process, pod_uid, lines, raw, asyncio.create_task(_read(process, lines, raw)))
        self.workers.append(worker)
        if ready:
            await worker.line("registered", 60)
        return worker

    async def submit(self, kind: str, user: str = "alice", **payload: Any) -> UUID:
        request = Submit(type=kind, user_id=user, payload=payload)
        limits = Limits(user_pending=1000, system_pending=1000)
        return (await submit(self.store, request, limits)).task_id

    async def row(self, task: UUID) -> Any:
        query = text(
            "SELECT k.state, k.epoch, k.worker_id, k.token, k.lease_until, t.attempts, t.interruptions, t.result,"
            " t.error_info, t.checkpoint FROM slackwater.claim k JOIN slackwater.task t ON t.id = k.task_id"
            " WHERE k.task_id = :task"
        )
        found = await until("the store answers", lambda: self._ask(query, {"task": task}))
        assert found is not None
        return found

    async def state(self, task: UUID, *states: str, seconds: float = 20) -> Any:
        async def there() -> Any:
            row = await self.row(task)
            return row if row.state in states else None

        try:
            return await until(f"task in {states}", there, seconds)
        except AssertionError as error:
            tails = "\n---\n".join(worker.tail() for worker in self.workers)
            raise AssertionError(f"{error}; it is {await self.row(task)}\n{tails}") from None

    async def get(self, port: int, path: str) -> int:
        async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
            return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code

    async def fault(self, **fault: Any) -> None:
        """The provider's next calls go wrong: see `POST /faults` of the stub."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            (await client.post(f"{self.stub.url}/faults", json=fault)).raise_for_status()

    async def query_one(self, statement: str, **values: Any) -> Any:
        return await self._ask(text(statement), values)

    async def _ask(self, query: TextClause, values: dict[str, Any]) -> Any:
        """None also when our own connection was cut: whoever waits asks again."""
        with contextlib.suppress(StoreUnavailable):
            async with self.store.transaction() as connection:
                return (await connection.execute(query, values)).one_or_none()
        return None

    async def execute(self, statement: str, **values: Any) -> None:
        async with self.store.transaction() as connection:
            await connection.execute(text(statement), values)

    async def close(self) -> None:
        for worker in self.workers:
            await worker.kill()

    def _new_directory(self) -> Path:
        directory = self.directory / f"run-{uuid4().hex[:8]}"
        directory.mkdir()
        return directory


async def _read(process: asyncio.subprocess.Process, lines: list[Line], raw: list[str]) -> None:
    assert process.stdout is not None
    async for data in process.stdout:
        said = data.decode(errors="replace").rstrip()
        raw.append(said)
        try:
            line = json.loads(said)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
