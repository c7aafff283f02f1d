"""Kubernetes events. Rule: they tell, they never decide; the same thing is told once in ten minutes.

Without the right to write them the operator works on, and says so once in its log.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from datetime import UTC, datetime

import structlog

from slackwater_operator import errors, paths
from slackwater_operator.kube import Kube
from slackwater_operator.names import GROUP, KIND, VERSION
from slackwater_operator.spec import PoolSpec

log = structlog.get_logger()
AGAIN_AFTER_SECONDS = 600
_REMEMBERED = 5_000


class Events:
    def __init__(self, kube: Kube, reporter: str) -> None:
        self._kube = kube
        self._reporter = reporter
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._silent_until = 0.0

    async def tell(self, spec: PoolSpec, reason: str, action: str, note: str, *, warning: bool = False) -> None:
        now = time.monotonic()
        key = (spec.uid, reason, note)
        if now < self._silent_until or now - self._told.get(key, float("-inf")) < AGAIN_AFTER_SECONDS:
            return
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        try:
            await self._kube.create(paths.events(spec.namespace), self._event(spec, reason, action, note, warning))
        except errors.Forbidden as error:
            # No right, or the namespace is going: neither is worth a try per event.
            self._silent_until = now + AGAIN_AFTER_SECONDS
            log.warning("events can't be written; work goes on", error=str(error))
        except errors.ApiError as error:
            log.info("event not written", reason=reason, error=str(error))

    def _event(self, spec: PoolSpec, reason: str, action: str, note: str, warning: bool) -> dict[str, object]:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{spec.name}.{uuid.uuid4().hex[:16]}", "namespace": spec.namespace},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{GROUP}/operator",
            "reportingInstance": self._reporter[:128],
            "action": action,
            "reason": reason,
            "note": note[:1024],
            "type": "Warning" if warning else "Normal",
            "regarding": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": spec.name,
                "namespace": spec.namespace,
                "uid": spec.uid,
            },
        }
