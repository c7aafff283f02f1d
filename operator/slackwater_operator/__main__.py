"""The process. Rule: stand by, lead, and when the Lease is lost be executed anew, with nothing remembered.

Exit codes: 0 stopped by a signal, 1 something broke, 2 bad settings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import kopf
import structlog

from slackwater_operator import errors, kube, metrics, settings
from slackwater_operator.cache import Cache
from slackwater_operator.elector import Elector
from slackwater_operator.events import Events
from slackwater_operator.handlers import kopf_identity, kopf_settings, registry
from slackwater_operator.leases import Leases
from slackwater_operator.reconcile import Reconciler
from slackwater_operator.resync import Resync, pauses
from slackwater_operator.rounds import Queue
from slackwater_operator.web import Web

log = structlog.get_logger()
_RETRY_SECONDS = 2.0


class Operator:
    def __init__(self, config: settings.Settings) -> None:
        self._settings = config
        self._elector = Elector(config)
        self._cache = Cache()
        self._queue: Queue | None = None
        self._stop = asyncio.Event()

    async def run(self) -> bool:
        """Until a signal (True) or until the Lease is lost (False)."""
        web = Web(self._settings.http_host, self._settings.http_port, self._unhealthy)
        await web.start()
        self._listen_for_signals()
        lock = await kube.connect(timeout_seconds=self._settings.lease_request_timeout_seconds, guard=lambda: None)
        try:
            if not await self._first(self._elector.acquire(lock)):
                return True
            metrics.leader.set(1)
            stopped = await self._lead(lock)
            await self._elector.release(lock)
            return stopped
        finally:
            metrics.leader.set(0)
            await lock.close()
            await web.stop()

    async def _lead(self, lock: kube.Kube) -> bool:
        config, cache = self._settings, self._cache
        api = await kube.connect(timeout_seconds=config.request_timeout_seconds, guard=self._elector.check)
        leases = Leases(pool_size=config.database_pool_size, guard=self._elector.check)
        events = Events(api, self._elector.identity)
        rounds = Reconciler(api, leases, cache, events, config)
        self._queue = Queue(rounds.round, at_once=config.rounds_at_once, on_delay=metrics.act_delay_seconds.observe)
        resync = Resync(api, cache, config.namespace_list)
        tasks = {
            asyncio.create_task(self._elector.hold(lock), name="elector"),
            asyncio.create_task(self._stop.wait(), name="stop"),
        }
        try:
            if not await self._first(self._persist(resync.run), *tasks):
                return self._stop.is_set()
            tasks |= {
                asyncio.create_task(self._watch(), name="watch"),
                asyncio.create_task(self._queue.run(), name="rounds"),
                asyncio.create_task(self._resync(resync), name="resync"),
                asyncio.create_task(self._changes(leases), name="changes"),
            }
            if config.sweeps:
                tasks.add(asyncio.create_task(leases.sweep_for_ever(self._wake_all), name="sweeps"))
            self._wake_all()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return self._why(done)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=3)
            await leases.close()
            await api.close()

    def _why(self, done: set[asyncio.Task[Any]]) -> bool:
        """The first task that ended says how this process ends."""
        for task in sorted(done, key=lambda t: t.get_name() != "stop"):
            error = task.exception()
            if isinstance(error, errors.NotLeader) or task.get_name() == "elector":
                return False
            if error is not None:
                raise error
        return True

    async def _watch(self) -> None:
        namespaces = self._settings.namespace_list
        assert self._queue is not None
        await kopf.operator(
            registry=registry(self._cache, self._queue),
            settings=kopf_settings(self._settings),
            identity=kopf_identity(self._elector.identity),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )

    async def _resync(self, resync: Resync) -> None:
        for pause in pauses(self._settings.resync_seconds):
            await asyncio.sleep(pause)
            await self._persist(resync.run)
            self._wake_all()

    def _wake_all(self) -> None:
        if self._queue is not None:
            for uid in self._cache.pools.groups():
                self._queue.wake(uid)

    async def _changes(self, leases: Leases) -> None:
        """NOTIFY from the store; without it the rounds' own timers are enough."""
        while True:
            try:
                async for uid in leases.changes():
                    if self._queue is not None and self._cache.pool(uid) is not None:
                        self._queue.wake(uid, after_seconds=self._settings.notify_spacing_seconds)
            except errors.StoreUnreachable as error:
                log.info("not listening to the store", error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _persist(self, what: Any) -> None:
        """Until it works; an API server that is away is waited for."""
        while True:
            try:
                await what()
            except errors.ApiError as error:
                log.warning("the list failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _first(self, work: Coroutine[Any, Any, None], *others: asyncio.Task[Any]) -> bool:
        """Run `work`; True if it ended before a signal and before the others."""
        stop = asyncio.create_task(self._stop.wait())
        task = asyncio.create_task(work)
        await asyncio.wait({stop, task, *others}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    def _unhealthy(self) -> str:
        if self._queue is None or not self._elector.leads:
            return ""
        age = self._queue.oldest_try_seconds()
        return f"a pool was not tried for {age:.0f} s" if age > self._settings.unreconciled_seconds else ""

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._stop.set)


def _log_as_json() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    )


def main() -> None:
    _log_as_json()
    config = settings.load()
    stopped = asyncio.run(Operator(config).run())
    if not stopped:
        log.warning("executing itself into standby")
        os.execv(sys.executable, [sys.executable, "-m", "slackwater_operator", *sys.argv[1:]])  # noqa: S606 - itself


if __name__ == "__main__":
    main()
