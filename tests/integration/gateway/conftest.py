"""The gateway on real servers: in process for most tests, behind a real uvicorn where bytes and connections matter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import UUID, uuid4

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy import text

from slackwater.claim import ClaimedTask, Identity
from slackwater.gateway.app import create_app
from slackwater.gateway.auth import Caller, KnownTokens
from slackwater.gateway.settings import GatewaySettings
from slackwater.store import Store
from slackwater.store.claiming import candidates, claim
from slackwater.store.registration import register

ALICE, BOB, ADMIN = "alice-token-0123456789", "bob-token-0123456789", "admin-token-0123456789"
TOKENS = KnownTokens([(ALICE, Caller("alice", False)), (BOB, Caller("bob", False)), (ADMIN, Caller("root", True))])
FIELDS = {"code", "message", "queued_count", "running_count", "queue_ahead", "estimated_wait_seconds", "limit"}
MakeApp = Callable[..., FastAPI]


@pytest.fixture
def make_app(store: Store, redis: Redis, postgres_url: str) -> MakeApp:
    """Another gateway on the same servers; settings by keyword."""

    def make(*, on: Store | None = None, slots: Redis | None = None, **settings: float) -> FastAPI:
        return create_app(
            settings=GatewaySettings(**settings),  # type: ignore[arg-type]
            store=on or store,
            slots=slots or redis,
            tokens=TOKENS,
            listen_url=postgres_url,
        )

    return make


def client_of(app: FastAPI, token: str | None = ALICE) -> httpx.AsyncClient:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


@pytest.fixture
async def app(make_app: MakeApp) -> FastAPI:
    return make_app()


@pytest.fixture
async def alice(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def bob(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, BOB) as client:
        yield client


@pytest.fixture
async def admin(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, ADMIN) as client:
        yield client


class QuietServer(uvicorn.Server):
    """Without signal handlers: the tests' own stay."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def eventually(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until it holds; for what gives no signal of its own."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - nothing there has an event to wait for
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The application behind a real server on a free port; its URL."""
    server = QuietServer(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    )
    running = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@pytest.fixture
async def url(app: FastAPI) -> AsyncIterator[str]:
    async with serving(app) as found:
        yield found


class Worker:
    """Claims like a worker, without one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._id = str(uuid4())

    async def start(self, queue: str = "default") -> None:
        identity = Identity(
            worker_id=self._id,
            pool_uid="pool",
            pool_name="pool",
            namespace="",
            pod_uid=f"pod-{self._id}",
            pod_name="pod",
            node="",
            revision="1",
            queues=(queue,),
            concurrency=4,
            task_types=("render",),
        )
        await register(self._store, identity, declarations={})

    async def claim(self) -> ClaimedTask:
        found = await candidates(self._store, queues=["default"], types=["render"], limit=1)
        taken = await claim(self._store, found[0], worker_id=self._id, token=uuid4(), generation=0)
        assert taken is not None
        return taken


@pytest.fixture
async def worker(store: Store) -> Worker:
    made = Worker(store)
    await made.start()
    return made


async def rows_in(store: Store, table: str) -> int:
    async with store.transaction() as connection:
        return int((await connection.execute(text(f"SELECT count(*) FROM slackwater.{table}"))).scalar_one())


async def state_of(store: Store, task_id: UUID | str) -> str:
    async with store.transaction() as connection:
        found = await connection.execute(
            text("SELECT state FROM slackwater.claim WHERE task_id = CAST(:id AS uuid)"), {"id": str(task_id)}
        )
        return str(found.scalar_one())
