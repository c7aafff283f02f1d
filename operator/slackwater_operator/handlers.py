"""What kopf tells us goes into the cache and wakes pools. Rule: event handlers only.

kopf's timers, daemons and deletion handlers would put a finalizer on WorkerPools, and a finalizer could leave a
namespace stuck for ever; so there is none, and garbage collection's SIGTERM is the drain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from slackwater_operator.cache import Cache, Kept
from slackwater_operator.names import GROUP, LABEL_POOL, PLURAL, VERSION
from slackwater_operator.rounds import Queue
from slackwater_operator.settings import Settings

Raw = Mapping[str, Any]
FINALIZER = f"kopf.{GROUP}/never-used"
"""kopf wants a name; no handler here makes it use one. Ours, if there ever were one, would have another."""


def registry(cache: Cache, queue: Queue) -> kopf.OperatorRegistry:
    found = kopf.OperatorRegistry()

    def on_pool(event: Raw, **_: Any) -> None:
        _each(_take(cache.pools, event), lambda uid: queue.wake(uid, urgent=True))

    def on_pod(event: Raw, **_: Any) -> None:
        _each(_take(cache.pods, event), queue.wake)

    def on_node(event: Raw, **_: Any) -> None:
        name = _take(cache.nodes, event)
        for uid in cache.pools_on_node(name) if name else ():
            queue.wake(uid)

    def on_budget(event: Raw, **_: Any) -> None:
        namespace = _take(cache.budgets, event)
        for uid in cache.pools_in(namespace) if namespace else ():
            queue.wake(uid)

    kopf.on.login(registry=found)(_login)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=found)(on_pool)
    kopf.on.event("", "v1", "pods", labels={LABEL_POOL: kopf.PRESENT}, registry=found)(on_pod)
    kopf.on.event("policy", "v1", "poddisruptionbudgets", registry=found)(on_budget)
    if cache.nodes_readable:
        kopf.on.event("", "v1", "nodes", registry=found)(on_node)
    return found


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _take(kind: Kept[Any], event: Raw) -> str | None:
    body = event["object"]
    if event["type"] == "DELETED":
        return kind.remove(body["metadata"]["uid"])
    return kind.put(body)


def _each(group: str | None, wake: Callable[[str], None]) -> None:
    if group is not None:
        wake(group)


def kopf_identity(name: str) -> Any:
    """Given, since kopf would otherwise look the user up, whom an image without /etc/passwd entries doesn't have."""
    return name


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.scanning.disabled = True
    found.peering.standalone = True
    found.persistence.finalizer = FINALIZER
    found.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{GROUP}")
    found.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"kopf.{GROUP}")
    found.networking.request_timeout = settings.request_timeout_seconds
    found.networking.connect_timeout = settings.watch_connect_timeout_seconds
    found.watching.server_timeout = settings.watch_server_timeout_seconds
    found.watching.client_timeout = settings.watch_server_timeout_seconds + 10
    found.watching.connect_timeout = settings.watch_connect_timeout_seconds
    found.watching.inactivity_timeout = settings.watch_silence_seconds
    found.watching.label_selectors["v1", "pods"] = LABEL_POOL
    return found
