"""The one door to the worker package. Rule: only this module imports `slackwater`; no answer is StoreUnreachable.

Every method is one transaction of the store and may be repeated. What the store says is made into values of `seen`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import psycopg
import structlog

from slackwater.claim import Ground
from slackwater.errors import SlackwaterError
from slackwater.redis_client import redis_client
from slackwater.schema import POOL_CHANNEL
from slackwater.settings import Constants, StoreSettings, load
from slackwater.slots import Slots
from slackwater.store import Store, overview, recovery, registration
from slackwater.store.url import plain_url
from slackwater.sweep import run_due
from slackwater_operator.errors import StoreUnreachable
from slackwater_operator.seen import Cordon, Lease, StoreView, Worker
from slackwater_operator.spec import PoolSpec

log = structlog.get_logger()
_READ_SECONDS = 8.0
_USUAL_SECONDS = 60.0


class Leases:
    """`guard` is asked before every write: a process that may be deposed writes nothing."""

    def __init__(self, *, pool_size: int, guard: Callable[[], None]) -> None:
        self._settings = load(StoreSettings)
        self._constants = load(Constants)
        url = self._settings.database_url.get_secret_value()
        self._store = Store.connect(url, constants=self._constants, pool_size=pool_size)
        self._guard = guard
        self._redis = redis_client(self._settings.redis_url.get_secret_value(), self._constants)
        self._slots = Slots(self._redis, prefix=self._settings.slot_prefix, constants=self._constants)
        self._usual: Mapping[str, float] = {}
        self._usual_at = float("-inf")

    async def close(self) -> None:
        await self._store.close()
        await self._redis.aclose()

    async def view(self, pool_uid: str) -> StoreView:
        await self._read_usual()
        async with _answers(_READ_SECONDS):
            return _view(await overview.pool_overview(self._store, pool_uid), self._usual)

    async def _read_usual(self) -> None:
        """Run times for estimates only: without them, or with old ones, everything else goes on."""
        if time.monotonic() - self._usual_at < _USUAL_SECONDS:
            return
        self._usual_at = time.monotonic()
        try:
            async with _answers(_READ_SECONDS / 2):
                self._usual = await overview.usual_seconds(self._store)
        except StoreUnreachable as error:
            log.info("usual run times not read", error=str(error))

    async def refresh(self, spec: PoolSpec) -> None:
        self._guard()
        async with _answers():
            await registration.refresh_pool(
                self._store,
                spec.uid,
                name=spec.name,
                namespace=spec.namespace,
                admission=spec.admission.value,
                queues=spec.queues,
                replicas=spec.replicas,
                concurrency=spec.concurrency,
            )

    async def cordon(self, pod_uid: str, cause: str, deadline: timedelta | None) -> datetime | None:
        """Returns the deadline that stands, by the store's clock."""
        self._guard()
        seconds = deadline.total_seconds() if deadline is not None else None
        async with _answers():
            view = await registration.cordon(
                self._store, pod_uid, origin="operator", cause=str(cause), deadline_seconds=seconds
            )
        return view.deadline

    async def call_off(self, pod_uid: str, sequence: int) -> bool:
        self._guard()
        async with _answers():
            return bool(await registration.call_off(self._store, pod_uid, sequence))

    async def condemn(self, pod_uid: str) -> bool:
        """True: cordoned before, holds nothing now, and can never claim again."""
        self._guard()
        async with _answers():
            return bool(await registration.condemn(self._store, pod_uid))

    async def vanish(self, pod_uid: str) -> None:
        self._guard()
        async with _answers():
            await registration.vanish(self._store, [pod_uid])

    async def witness(self, worker_id: str) -> int:
        """Take back every claim of a worker that the kubelet saw end."""
        self._guard()
        async with _answers():
            return int(await recovery.witness(self._store, worker_id, slots=self._slots))

    async def take_away(self, pod_uid: str) -> list[str]:
        """Past the deadline. Each is taken only as it was read: a claim that ended or moved meanwhile is left alone."""
        self._guard()
        async with _answers():
            claims = await recovery.running_claims(self._store, pod_uid=pod_uid)
            return [str(c.task_id) for c in claims if await recovery.take_away(self._store, c, Ground.DEADLINE)]

    async def handed_back(self, pod_uid: str) -> list[str]:
        """Tasks that the pod's own workers gave up at the deadline."""
        async with _answers():
            return await overview.handed_back(self._store, pod_uid)

    async def sweep_for_ever(self, on_turn: Callable[[], None]) -> None:
        """Take part in the sweeps: whoever hits a sweep's row runs its round, so more takers only mean less delay.

        `on_turn`: the store stopped or began to answer, which every pool's status is to say soon.
        """
        answered = True
        while True:
            self._guard()
            before = answered
            try:
                async with _answers(60.0):
                    await run_due(self._store, self._slots)
                answered = True
            except StoreUnreachable as error:
                answered = False
                log.info("sweep put off", error=str(error))
            if answered != before:
                on_turn()
            await asyncio.sleep(self._constants.sweep_expired_seconds / 2)

    async def changes(self) -> AsyncIterator[str]:
        """Uids of pools in which something changed; ends with StoreUnreachable when the connection does."""
        async with _answers():
            connection = await psycopg.AsyncConnection.connect(
                plain_url(self._settings.listen_url), autocommit=True, prepare_threshold=None, connect_timeout=5
            )
        try:
            await connection.execute(f"LISTEN {POOL_CHANNEL}")
            async for notify in connection.notifies():
                yield notify.payload
        except psycopg.Error as error:
            raise StoreUnreachable(f"lost the connection that listens: {error}") from error
        finally:
            await connection.close()


@asynccontextmanager
async def _answers(seconds: float = 20.0) -> AsyncIterator[None]:
    """Whatever is no answer becomes StoreUnreachable; nothing else may be concluded from it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (SlackwaterError, psycopg.Error, OSError) as error:
        raise StoreUnreachable(f"{type(error).__name__}: {error}") from error


def _view(found: overview.Overview, usual: Mapping[str, float]) -> StoreView:
    workers = tuple(
        Worker(
            id=w.worker_id,
            pod_uid=w.pod_uid,
            pod_name=w.pod_name,
            registered_at=w.registered_at,
            seen_at=w.seen_at or w.registered_at,
            ended=w.ended_at is not None,
        )
        for w in found.workers
    )
    cordons = {
        uid: Cordon(c.sequence, c.origin or "operator", c.cause or "", c.since, c.deadline, c.condemned)
        for uid, c in found.cordons.items()
        if c.since is not None
    }
    leases = {uid: tuple(_lease(row, found.now, usual) for row in rows) for uid, rows in found.leases.items()}
    return StoreView(found.now, workers, cordons, leases, found.counters)


def _lease(row: overview.LeaseRow, now: datetime, usual: Mapping[str, float]) -> Lease:
    """The end is estimated from the task's own progress, else from its type's usual run time."""
    spent = (now - row.claimed_at).total_seconds()
    end: datetime | None = None
    if row.progress is not None and 0.05 <= row.progress <= 1 and spent > 0:
        end = row.claimed_at + timedelta(seconds=spent / row.progress)
    elif row.type in usual:
        end = max(now, row.claimed_at + timedelta(seconds=usual[row.type]))
    return Lease(row.task_id, row.type, row.worker_id, row.claimed_at, row.lease_until, end)
