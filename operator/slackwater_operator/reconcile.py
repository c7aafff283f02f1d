"""One round of a pool: look → plan → act, until quiet → one status write → events. Rule: level-triggered.

Nothing is remembered that a restart could not see again on the pods, the revisions and in the store; what is kept
between rounds only spares work (when the pool's row was refreshed, what was last written as status).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from slackwater_operator import errors, metrics, paths
from slackwater_operator.act import Actor, Outcome, Told
from slackwater_operator.actions import Plan
from slackwater_operator.cache import Cache
from slackwater_operator.conditions import Problem
from slackwater_operator.events import Events
from slackwater_operator.figures import publish, publish_conditions
from slackwater_operator.kube import Kube
from slackwater_operator.leases import Leases
from slackwater_operator.observe import Observer
from slackwater_operator.plan import plan
from slackwater_operator.seen import Observation
from slackwater_operator.settings import Settings
from slackwater_operator.spec import PoolSpec, parse
from slackwater_operator.status import merge, settled_part, status

log = structlog.get_logger()
_LOOKS = 12
"""At most so many looks in one round; the walk of a draining pod takes four."""


@dataclass
class _Memory:
    refreshed: tuple[PoolSpec, float] | None = None
    written: dict[str, Any] | None = None
    written_at: float = 0.0
    told: list[Told] = field(default_factory=list)


class Reconciler:
    def __init__(self, kube: Kube, leases: Leases, cache: Cache, events: Events, settings: Settings) -> None:
        self._kube = kube
        self._leases = leases
        self._cache = cache
        self._events = events
        self._settings = settings
        self._observer = Observer(cache, leases)
        self._actor = Actor(kube, leases, cache)
        self._memory: dict[str, _Memory] = {}
        self._names: dict[str, tuple[str, str]] = {}

    async def round(self, uid: str) -> float | None:
        """Returns after how many seconds to look again; None when the pool is gone."""
        body = self._cache.pool(uid)
        if body is None:
            self._forget(uid)
            return None
        memory = self._memory.setdefault(uid, _Memory())
        self._names[uid] = (body["metadata"]["namespace"], body["metadata"]["name"])
        started = time.monotonic()
        try:
            spec = parse(body)
        except errors.InvalidSpec as error:
            await self._complain(body, error, memory)
            return self._settings.unreconciled_seconds / 2
        try:
            again = await self._reconcile(spec, memory)
        except Exception:
            metrics.rounds.labels(spec.namespace, spec.name, "failed").inc()
            raise
        metrics.rounds.labels(spec.namespace, spec.name, "done").inc()
        metrics.round_seconds.observe(time.monotonic() - started)
        return again

    async def _reconcile(self, spec: PoolSpec, memory: _Memory) -> float:
        await self._refresh(spec, memory)
        problems: list[Problem] = []
        seen, now, planned = await self._look(spec)
        try:
            for _ in range(_LOOKS):
                self._actor.settle(spec.uid, planned.actions)
                outcome = await self._actor.run(spec, planned.actions)
                self._log(spec, outcome)
                memory.told += outcome.told
                problems = outcome.problems
                if not outcome.changed:
                    break
                seen, now, planned = await self._look(spec)
        except errors.StoreUnreachable as error:
            log.warning("the store went away in the round", pool=spec.name, error=str(error))
            seen, now, planned = await self._look(spec)
        publish(spec, seen, now)
        wait = await self._write_status(spec, seen, now, problems, memory)
        await self._tell(spec, memory)
        return min(self._again(spec, planned), wait)

    async def _look(self, spec: PoolSpec) -> tuple[Observation, datetime, Plan]:
        seen, now = await self._observer.look(spec)
        metrics.store_reachable.set(seen.store is not None)
        return seen, now, plan(spec, seen, now)

    async def _refresh(self, spec: PoolSpec, memory: _Memory) -> None:
        """The pool's row, when something in it changed and once a minute."""
        now = time.monotonic()
        if memory.refreshed is not None:
            known, at = memory.refreshed
            if known == spec and now - at < self._settings.pool_refresh_seconds:
                return
        try:
            await self._leases.refresh(spec)
        except errors.StoreUnreachable as error:
            log.info("pool not refreshed", pool=spec.name, error=str(error))
            return
        memory.refreshed = (spec, now)

    def _again(self, spec: PoolSpec, planned: Plan) -> float:
        planned_for = (planned.look_again or timedelta(seconds=30)).total_seconds()
        put_off = self._actor.next_try(spec.uid)
        return min(planned_for, put_off) if put_off is not None else planned_for

    async def _write_status(
        self, spec: PoolSpec, seen: Observation, now: datetime, problems: list[Problem], memory: _Memory
    ) -> float:
        """At most one write, none when nothing changed. Returns when a put-off write is due."""
        if memory.written is None:
            memory.written = await self._read_status(spec)
        wanted = merge(memory.written, status(spec, seen, now, problems), now)
        publish_conditions(spec, wanted["conditions"])
        age = time.monotonic() - memory.written_at
        if wanted == memory.written:
            return self._settings.drift_seconds
        spacing = (
            self._settings.drift_seconds
            if settled_part(wanted) == settled_part(memory.written)
            else self._settings.status_spacing_seconds
        )
        if memory.written_at and age < spacing:
            return spacing - age
        await self._kube.patch(
            paths.pool_status(spec.namespace, spec.name), {"status": _replacing(memory.written, wanted)}
        )
        metrics.status_writes.labels(spec.namespace, spec.name).inc()
        memory.written, memory.written_at = wanted, time.monotonic()
        return self._settings.drift_seconds

    async def _read_status(self, spec: PoolSpec) -> dict[str, Any]:
        return dict((await self._kube.get(paths.pools(spec.namespace, spec.name))).get("status") or {})

    async def _complain(self, body: Mapping[str, Any], error: errors.InvalidSpec, memory: _Memory) -> None:
        """A spec that slipped through the schema: what runs is left alone, and the status names the field."""
        meta = body["metadata"]
        now = datetime.now(UTC)
        old = memory.written or {}
        said = {"type": "Stalled", "status": "True", "reason": error.reason.value, "message": str(error)}
        others = [c for c in old.get("conditions") or [] if c["type"] != "Stalled"]
        wanted = merge(
            old, {**old, "observedGeneration": meta.get("generation", 0), "conditions": [*others, said]}, now
        )
        if wanted != old:
            await self._kube.patch(paths.pool_status(meta["namespace"], meta["name"]), {"status": wanted})
            memory.written, memory.written_at = wanted, time.monotonic()

    async def _tell(self, spec: PoolSpec, memory: _Memory) -> None:
        told, memory.told = memory.told, []
        for one in told:
            await self._events.tell(spec, one.reason, one.reason, one.note, warning=one.warning)

    @staticmethod
    def _log(spec: PoolSpec, outcome: Outcome) -> None:
        for one in outcome.told:
            log.info("acted", namespace=spec.namespace, pool=spec.name, reason=one.reason, note=one.note)

    def _forget(self, uid: str) -> None:
        self._memory.pop(uid, None)
        self._actor.settle(uid, ())
        if uid in self._names:
            metrics.forget(*self._names.pop(uid))


def _replacing(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A merge patch keeps what it does not name, so what has gone is named as null."""
    return {**{key: None for key in old if key not in new}, **new}
