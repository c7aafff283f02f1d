"""A small world for the store's tests: tasks, workers, and hands on the locks that make interleavings repeatable."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

from slackwater.claim import Candidate, Claim, ClaimedTask, Identity, RunningClaim
from slackwater.store import Store, claiming, recovery, registration
from slackwater.store.generation import read_generation
from slackwater.store.url import plain_url

Result = TypeVar("Result")


class World:
    """Shortcuts over one store, and a plain connection for looking at rows and for standing in the way."""

    def __init__(self, store: Store, url: str) -> None:
        self.store = store
        self.url = plain_url(url)
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def sql(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """Run one statement on the world's own connection, committed."""
        async with self._lock:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self.url, autocommit=True, row_factory=dict_row
                )
            cursor = await self._connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

    async def one(self, statement: str, **values: Any) -> dict[str, Any]:
        (row,) = await self.sql(statement, **values)
        return row

    async def worker(
        self,
        worker_id: str = "w1",
        *,
        pod: str = "pod1",
        pool: str = "pool1",
        queues: tuple[str, ...] = ("default",),
        declarations: dict[str, dict[str, Any]] | None = None,
    ) -> str:
        identity = Identity(
            worker_id, pool, pool, "ns", pod, pod, "node1", "r1", queues=queues, concurrency=4, task_types=("t",)
        )
        await registration.register(self.store, identity, declarations or {"t": {"on_interrupt": "requeue"}})
        return worker_id

    async def task(
        self, *, kind: str = "t", queue: str = "default", user: str = "u1", channel: str = "", order: float = 0.0
    ) -> UUID:
        task_id = uuid4()
        await self.sql(
            """
            WITH t AS (
                INSERT INTO slackwater.task (id, type, queue, user_id, channel, payload)
                VALUES (%(id)s, %(kind)s, %(queue)s, %(user)s, %(channel)s, '{"seconds": 3}')
            ), k AS (
                INSERT INTO slackwater.claim (task_id, type, queue, user_id, channel, order_key)
                VALUES (%(id)s, %(kind)s, %(queue)s, %(user)s, %(channel)s, %(order)s)
            ), q AS (INSERT INTO slackwater.queue (name) VALUES (%(queue)s) ON CONFLICT DO NOTHING)
            INSERT INTO slackwater.settlement (task_id, n, user_id, reserved) VALUES (%(id)s, 1, %(user)s, 5)
            """,
            id=task_id,
            kind=kind,
            queue=queue,
            user=user,
            channel=channel,
            order=order,
        )
        return task_id

    async def candidate(self, task_id: UUID) -> Candidate:
        row = await self.one(
            "SELECT *, clock_timestamp() AS now FROM slackwater.claim WHERE task_id = %(id)s", id=task_id
        )
        return Candidate(
            task_id, row["epoch"], row["type"], row["queue"], row["user_id"], row["channel"], read_at=row["now"]
        )

    async def try_claim(
        self,
        candidate: Candidate | UUID,
        worker_id: str = "w1",
        *,
        token: UUID | None = None,
        generation: int | None = None,
    ) -> ClaimedTask | None:
        if isinstance(candidate, UUID):
            candidate = await self.candidate(candidate)
        if generation is None:
            generation = await read_generation(self.store)
        return await claiming.claim(
            self.store, candidate, worker_id=worker_id, token=token or uuid4(), generation=generation
        )

    async def running(self, worker_id: str = "w1", **wanted: Any) -> Claim:
        """A new task, claimed by a registered worker."""
        claimed = await self.try_claim(await self.task(**wanted), worker_id)
        assert claimed is not None
        return claimed.claim

    async def seen(self, claim: Claim) -> RunningClaim:
        (seen,) = await recovery.running_claims(self.store, task_id=claim.task_id)
        return seen

    async def expire(self, claim: Claim) -> None:
        """Let the lease run out, without waiting for it."""
        await self.sql(
            "UPDATE slackwater.claim SET lease_until = clock_timestamp() - interval '1 ms' WHERE task_id = %(id)s",
            id=claim.task_id,
        )

    async def row(self, task_id: UUID) -> dict[str, Any]:
        """Claim, task and latest settlement in one."""
        return await self.one(
            """
            SELECT k.*, t.attempts, t.interruptions, t.progress, t.checkpoint, t.result, t.error_info, t.updated_at,
                   t.pending_since, t.started_at, t.finished_at, s.reserved, s.charged, s.refunded,
                   clock_timestamp() AS now
            FROM slackwater.claim k JOIN slackwater.task t ON t.id = k.task_id
            JOIN slackwater.settlement s ON s.task_id = t.id AND s.n = t.settlement WHERE k.task_id = %(id)s
            """,
            id=task_id,
        )

    async def events(self, task_id: UUID) -> list[tuple[int, str]]:
        rows = await self.sql("SELECT seq, kind FROM slackwater.event WHERE task_id = %(id)s ORDER BY seq", id=task_id)
        return [(row["seq"], row["kind"]) for row in rows]

    async def counter(self, name: str) -> int:
        rows = await self.sql("SELECT sum(value)::int AS n FROM slackwater.counter WHERE name = %(name)s", name=name)
        return rows[0]["n"] or 0

    async def everything(self) -> dict[str, list[str]]:
        """The content of every table that an execution may write, for "changes nothing"."""
        tables = ("task", "claim", "submission", "settlement", "event", "outbox", "cordon", "worker", "audit")
        found = {}
        for table in tables:
            rows = await self.sql(f"SELECT x::text AS row FROM slackwater.{table} x ORDER BY 1")
            found[table] = [row["row"] for row in rows]
        return found

    @asynccontextmanager
    async def holding(self, statement: str, **values: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Another session that has run `statement` and not committed yet; commits at the end."""
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            await connection.execute(statement, values)
            yield connection
            await connection.commit()

    async def blocked(self, count: int = 1) -> None:
        """Return when that many sessions wait for a lock: the signal that an interleaving has been reached."""
        await until(lambda: self._waiting(count))

    async def _waiting(self, count: int) -> bool:
        row = await self.one("SELECT count(DISTINCT pid)::int AS n FROM pg_locks WHERE NOT granted")
        return bool(row["n"] >= count)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 4.0) -> None:
    """Ask again and again until it holds; the deadline is only for a broken test."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110  another process holds what we wait for
            await asyncio.sleep(0.002)


def aged(candidate: Candidate, seconds: float) -> Candidate:
    """The same candidate, read that long ago."""
    return dataclasses.replace(candidate, read_at=candidate.read_at - timedelta(seconds=seconds))
