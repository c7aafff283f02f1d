"""A pool's gauges. Rule: they are taken from the same looks, and the same conditions, as its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from slackwater_operator import metrics
from slackwater_operator.drain import Standing, look
from slackwater_operator.seen import Observation
from slackwater_operator.spec import PoolSpec


def publish(spec: PoolSpec, seen: Observation, now: datetime) -> None:
    where = (spec.namespace, spec.name)
    views = [look(seen, pod, now) for pod in seen.pods]
    by_standing = Counter(view.standing for view in views)
    for standing in Standing:
        metrics.replicas.labels(*where, standing.name.lower()).set(by_standing[standing])
    metrics.desired.labels(*where).set(spec.desired)
    metrics.leases.labels(*where).set(sum(len(view.leases) for view in views))
    drains = [(now - v.cordon.since).total_seconds() for v in views if v.cordon and v.standing is Standing.DRAINING]
    metrics.oldest_drain.labels(*where).set(max(drains, default=0.0))
    for name, value in (seen.store.counters if seen.store else {}).items():
        metrics.recovery.labels(*where, name).set(value)


def publish_conditions(spec: PoolSpec, conditions: Iterable[Mapping[str, Any]]) -> None:
    for one in conditions:
        metrics.condition.labels(spec.namespace, spec.name, one["type"]).set(one["status"] == "True")
