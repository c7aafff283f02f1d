"""`slackwater worker`, put together: settings → identity and lock → connections → the loop, and out with its exit code.

Rule: a fault of the settings ends with code 2 and names the setting; everything that can come later is waited for.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from slackwater import metrics
from slackwater.aftercare import care_forever
from slackwater.delivery.round import deliver_forever
from slackwater.dispatch import Dispatcher
from slackwater.errors import SettingsError
from slackwater.executor import Surroundings
from slackwater.health import HealthServer, Pulse
from slackwater.identity import PodLock, WorkerSettings, make_identity, write_termination_log
from slackwater.links import Known, MainLinks, ThreadLinks, connect_main, connect_thread
from slackwater.logging import configure, logger
from slackwater.loop import Worker
from slackwater.redis_client import redis_client
from slackwater.renewal import Figures, Renewal
from slackwater.settings import Constants, DeliverySettings, StoreSettings, load
from slackwater.shutdown import ExitCode
from slackwater.store.url import driver_url
from slackwater.task import Registry
from slackwater.task import load as load_tasks

log = logger("slackwater.worker")
CARE_SECONDS = 2.0
"""Aftercare is looked for this often; only by workers whose types declare hooks."""


@dataclass(frozen=True)
class Prepared:
    """Everything that the settings alone decide; whatever is wrong with them shows before a thread or a connection."""

    settings: WorkerSettings
    constants: Constants
    where: StoreSettings
    delivery: DeliverySettings
    registry: Registry
    lock: PodLock | None


def main() -> NoReturn:
    """Run a worker until it is done; never returns, since code that does not stop must not keep the process."""
    try:
        prepared = prepare()
    except SettingsError as error:
        _exit(_refuse(error))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        code = loop.run_until_complete(run(prepared))
    except SettingsError as error:
        code = _refuse(error)
    _exit(code)


def _refuse(error: SettingsError) -> ExitCode:
    """Say what is wrong where a person looks: on the console, and in the pod's status by the termination log."""
    said = f"slackwater worker: {error}"
    sys.stderr.write(f"{said}\n")
    default = WorkerSettings.model_fields["termination_log"].default
    write_termination_log(Path(os.environ.get("SLACKWATER_TERMINATION_LOG") or default), said)
    return ExitCode.SETTINGS


def prepare() -> Prepared:
    """From the environment. Raises SettingsError, naming the setting."""
    settings, constants, where = load(WorkerSettings), load(Constants), load(StoreSettings)
    configure(level=settings.log_level)
    driver_url(where.database_url.get_secret_value())
    driver_url(where.listen_url)
    redis_client(where.redis_url.get_secret_value(), constants)
    return Prepared(
        settings, constants, where, load(DeliverySettings), known_tasks(settings.tasks), _pod_lock(settings)
    )


def known_tasks(modules: tuple[str, ...]) -> Registry:
    try:
        registry = load_tasks(modules)
    except Exception as error:  # an author's module may raise anything while it is imported
        log.error("the tasks can't be loaded", exc_info=error)
        raise SettingsError("SLACKWATER_TASKS", f"can't be loaded: {type(error).__name__}: {error}") from error
    if not registry.names:
        raise SettingsError("SLACKWATER_TASKS", f"no task is declared in {', '.join(modules)}")
    return registry


async def run(prepared: Prepared) -> ExitCode:
    settings, constants, where = prepared.settings, prepared.constants, prepared.where
    registry = prepared.registry
    identity = make_identity(settings, registry.names)
    write_termination_log(settings.termination_log, identity.worker_id)
    pulse = Pulse(ready_seconds=settings.ready_seconds, live_seconds=settings.live_seconds)
    health = _health(pulse, settings.health_port)
    log.info("started", worker=identity.worker_id, pid=os.getpid(), port=health.port, revision=settings.revision)
    inherit = await _take_lock(prepared.lock, pulse)
    known = Known()
    connected: list[ThreadLinks] = []
    renewal = Renewal(
        partial(connect_thread, where, constants, known, identity.pod_uid, connected), _figures(constants)
    )
    renewal.start()
    pulse.renewal_turned_at = lambda: renewal.turned_at
    async with connect_main(where, constants, 4 + settings.concurrency // 8) as (store, slots):
        links = MainLinks(
            store,
            slots,
            known=known,
            identity=identity,
            declarations=registry.declarations(),
            listen_url=where.listen_url,
        )
        worker = Worker(
            identity,
            registry,
            links,
            pulse,
            grace_seconds=settings.grace_seconds,
            heartbeat_seconds=constants.heartbeat_seconds,
            sweep_seconds=constants.sweep_expired_seconds,
        )
        worker.cordon_self = lambda cause, deadline: renewal.post(connected[0].cordon, cause, deadline)
        worker.around = Surroundings(
            writes=links,
            renewal=renewal,
            clock=time.monotonic,
            answer_seconds=constants.claim_timeout_seconds,
            cancel_grace_seconds=constants.cancel_grace_seconds,
            modules=settings.tasks,
            inherit=inherit,
            on_stubborn=worker.stubborn,
            drain_deadline=worker.drain_deadline,
        )
        worker.dispatcher = Dispatcher(
            links,
            worker.wake,
            clock=time.monotonic,
            free=worker.free,
            claiming=worker.claiming,
            accept=worker.accept,
            claim_seconds=constants.claim_timeout_seconds,
            slot_seconds=constants.slot_timeout_seconds,
            poll_seconds=settings.poll_seconds,
            refused=worker.refused,
        )
        side = [asyncio.create_task(care_forever(store, registry, seconds=CARE_SECONDS, willing=worker.claiming))]
        if settings.deliver:
            side.append(asyncio.create_task(deliver_forever(store, prepared.delivery)))
        code = await worker.run()
        for task in side:
            task.cancel()
        await asyncio.wait(side, timeout=1.0)  # a hook that ignores its cancellation keeps no worker
    renewal.close(2.0)
    health.close()
    return code


def _health(pulse: Pulse, port: int) -> HealthServer:
    try:
        server = HealthServer(pulse, port)
    except OSError as error:
        raise SettingsError("SLACKWATER_HEALTH_PORT", f"can't be listened on: {error}") from error
    server.start()
    return server


def _pod_lock(settings: WorkerSettings) -> PodLock | None:
    if settings.run_dir is None:
        return None
    try:
        return PodLock(settings.run_dir)
    except OSError as error:
        raise SettingsError("SLACKWATER_RUN_DIR", f"no lock file can be made there: {error}") from error


async def _take_lock(lock: PodLock | None, pulse: Pulse) -> tuple[int, ...]:
    """One worker per pod. Whoever holds it is a worker, or a task's process, that has not ended yet."""
    if lock is None:
        return ()
    told = False
    while not lock.try_take():
        if not told:
            log.warning("the pod's lock is held: waiting for the last process of the worker before")
            told = True
        pulse.turn()
        await asyncio.sleep(0.1)
    return lock.inherit


def _figures(constants: Constants) -> Figures:
    return Figures(
        renew_seconds=constants.renew_seconds,
        answer_seconds=constants.claim_timeout_seconds,
        slot_answer_seconds=constants.slot_timeout_seconds,
        slot_patience_seconds=constants.slot_silence_seconds,
        trust_seconds=constants.trust_seconds,
    )


def _exit(code: ExitCode) -> NoReturn:
    metrics.RUNNING.set(0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
