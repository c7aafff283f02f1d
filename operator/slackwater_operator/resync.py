"""The full list, at the start and every few minutes. Rule: a watch may miss a deletion; a list may not.

Items are made into values page by page, so that thousands of pods are never held as JSON at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from slackwater_operator import errors, paths, reading
from slackwater_operator.cache import Cache, Kept
from slackwater_operator.kube import Kube
from slackwater_operator.names import LABEL_POOL

log = structlog.get_logger()


_EARLY_SECONDS = (3.0, 15.0)
"""What was deleted after our first list and before the watch's own is told by nobody; the watch begins meanwhile."""


def pauses(resync_seconds: float) -> Iterator[float]:
    """Before each further list: two soon after the start, then the usual."""
    yield from (min(early, resync_seconds) for early in _EARLY_SECONDS)
    yield from itertools.repeat(resync_seconds)


class Resync:
    def __init__(self, kube: Kube, cache: Cache, namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._cache = cache
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)

    async def run(self) -> None:
        cache = self._cache
        if cache.nodes_readable:
            try:
                await self._list(cache.nodes, lambda _: paths.nodes(), scoped=False)
            except errors.Forbidden as error:
                cache.nodes_readable = False
                log.warning("nodes can't be read: no node is drained", error=str(error))
        await self._list(cache.pools, paths.pools)
        await self._list(cache.budgets, paths.budgets)
        await self._list(cache.revisions, paths.revisions, labels=LABEL_POOL)
        await self._list(cache.pods, paths.pods, labels=LABEL_POOL)

    async def _list(
        self, kind: Kept[Any], path: Callable[[str | None], str], *, labels: str = "", scoped: bool = True
    ) -> None:
        listed: set[str] = set()
        version = 0
        for namespace in self._namespaces if scoped else (None,):
            async for page in self._kube.pages(path(namespace), labels=labels):
                # The first page's version is the list's; a later namespace's list is newer, so the oldest counts.
                found = reading.version(page)
                version = min(version, found) if version else found
                for item in page.get("items") or []:
                    listed.add(item["metadata"]["uid"])
                    kind.put(item)
        kind.prune(listed, version)
