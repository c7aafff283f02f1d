"""One look at everything. Rule: cache first, store last, so that what frees a pod is never older than the pod.

A store that gives no answer is part of what was seen, not an error: the plan then deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from slackwater_operator.cache import Cache
from slackwater_operator.errors import StoreUnreachable
from slackwater_operator.leases import Leases
from slackwater_operator.seen import Budget, Node, Observation, Pod
from slackwater_operator.spec import PoolSpec


class Observer:
    def __init__(self, cache: Cache, leases: Leases, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._cache = cache
        self._leases = leases
        self._wall = wall
        self._last_busy: dict[str, datetime] = {}

    async def look(self, spec: PoolSpec) -> tuple[Observation, datetime]:
        """What is seen, and the moment: the database's clock where it answered."""
        pods = tuple(sorted(self._cache.pods.of(spec.uid), key=lambda p: p.name))
        store, error = None, ""
        try:
            store = await self._leases.view(spec.uid)
        except StoreUnreachable as unreachable:
            error = str(unreachable)
        now = store.now if store is not None else self._wall()
        labels = ((spec.content.get("template") or {}).get("metadata") or {}).get("labels") or {}
        seen = Observation(
            pods=pods,
            nodes=self._nodes(pods),
            store=store,
            store_error=error,
            revisions=tuple(self._cache.revisions.of(spec.uid)),
            budgets=tuple(
                Budget(b.name, b.owner == spec.uid, b.selects) for b in self._cache.budgets.of(spec.namespace)
            ),
            template_labels=tuple(sorted(labels.items())),
            last_busy=self._remember(pods, seen_busy=set(store.leases) if store else set(), now=now),
        )
        return seen, now

    def forget(self, pods: set[str]) -> None:
        """Keep only what these pods need."""
        self._last_busy = {uid: at for uid, at in self._last_busy.items() if uid in pods}

    def _nodes(self, pods: tuple[Pod, ...]) -> dict[str, Node] | None:
        if not self._cache.nodes_readable:
            return None
        found = ((pod.node, self._cache.node(pod.node)) for pod in pods if pod.node)
        return {name: node for name, node in found if node is not None}

    def _remember(self, pods: tuple[Pod, ...], *, seen_busy: set[str], now: datetime) -> dict[str, datetime]:
        """A protected pod met for the first time counts as busy now: a restart protects for longer, never for less."""
        for pod in pods:
            if pod.uid in seen_busy or (pod.protected and pod.uid not in self._last_busy):
                self._last_busy[pod.uid] = now
        return {pod.uid: self._last_busy[pod.uid] for pod in pods if pod.uid in self._last_busy}
