"""Figures for Prometheus. Rule: labels are pools and closed words, never pods, tasks, users or messages.

`tasks_lost_total` and `double_run_total` exist to stay at zero.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
_POOL = ("namespace", "pool")
_PREFIX = "slackwater_operator_"


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(_PREFIX + name, text, labels, registry=REGISTRY)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(_PREFIX + name, text, labels, registry=REGISTRY)


leader = _gauge("leader", "1 while this process leads")
desired = _gauge("pool_desired_replicas", "spec.replicas, 0 under HoldAndDrain", *_POOL)
replicas = _gauge("pool_replicas", "Pods by standing", *_POOL, "standing")
leases = _gauge("pool_active_leases", "Running claims of the pool's pods", *_POOL)
oldest_drain = _gauge("pool_oldest_drain_seconds", "Age of the oldest drain that is waited for", *_POOL)
condition = _gauge("pool_condition", "1 if the condition is true", *_POOL, "condition")
actions = _counter("actions_total", "Actions done", *_POOL, "action", "outcome")
drains = _counter("drains_total", "Drains begun", *_POOL, "cause")
rounds = _counter("rounds_total", "Rounds", *_POOL, "outcome")
status_writes = _counter("status_writes_total", "Status writes", *_POOL)
api_errors = _counter("api_errors_total", "Refusals and time-outs of the API server", "reason")
store_reachable = _gauge("store_reachable", "1 if the store answered last time")
round_seconds = Histogram(
    _PREFIX + "round_seconds",
    "Duration of a round",
    registry=REGISTRY,
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
act_delay_seconds = Histogram(
    _PREFIX + "wake_to_round_seconds",
    "From the event to the round that answers it",
    registry=REGISTRY,
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60),
)
recovery = _gauge("pool_recovery", "Recovery counters of the store", *_POOL, "counter")
tasks_lost = Counter("slackwater_tasks_lost", "Accepted tasks that no table knows; stays 0", registry=REGISTRY)
double_run = Counter("slackwater_double_run", "Tasks with two live claims; stays 0", registry=REGISTRY)

_PER_POOL = (desired, replicas, leases, oldest_drain, condition, recovery)


def forget(namespace: str, pool: str) -> None:
    """A pool is gone: so are its gauges."""
    for gauge in _PER_POOL:
        gauge.remove_by_labels({"namespace": namespace, "pool": pool})
