"""Lists make good what a watch never told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import islice
from typing import Any, cast

from slackwater_operator import paths
from slackwater_operator.cache import Cache
from slackwater_operator.kube import Kube
from slackwater_operator.names import LABEL_POOL
from slackwater_operator.resync import Resync, pauses


class Lists:
    """An API server whose pods change between two lists."""

    def __init__(self) -> None:
        self.version = 10
        self.pods: list[dict[str, Any]] = []

    async def pages(self, path: str, *, labels: str = "") -> AsyncIterator[dict[str, Any]]:
        items = self.pods if path == paths.pods(None) else []
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": items}


def pod(uid: str) -> dict[str, Any]:
    owner = {
        "kind": "WorkerPool",
        "name": "p",
        "uid": "pool",
        "controller": True,
        "apiVersion": "slackwater.dev/v1alpha1",
    }
    meta = {
        "uid": uid, "name": uid, "namespace": "n", "resourceVersion": "5", "labels": {LABEL_POOL: "p"},
        "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner],
    }  # fmt: skip
    return {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}}


async def test_a_pod_deleted_between_our_list_and_the_watchs_is_forgotten_by_the_next_list() -> None:
    server, cache = Lists(), Cache()
    server.pods = [pod("a"), pod("b")]
    resync = Resync(cast(Kube, server), cache, ())
    await resync.run()
    assert len(cache.pods.of("pool")) == 2
    server.pods, server.version = [pod("a")], 11
    await resync.run()
    assert [p.uid for p in cache.pods.of("pool")] == ["a"]


def test_the_next_lists_come_soon_after_the_start_and_then_as_set() -> None:
    assert list(islice(pauses(240), 4)) == [3, 15, 240, 240]
    assert list(islice(pauses(10), 3)) == [3, 10, 10]
