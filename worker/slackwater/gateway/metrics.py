"""Figures of the gateway. Rule: labels come from fixed sets; no task, user, path as sent or text becomes one (C143).

Queues are named only if a pool serves them: anyone may send to a queue of any name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from slackwater.store.adopting import Unknown
from slackwater.store.outbox import Backlog
from slackwater.store.reading import QueueStats

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"


class Metrics:
    """One registry per application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.open_streams = 0
        prefix = "slackwater_gateway"
        self.requests = Counter(
            f"{prefix}_requests", "Requests by route", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            f"{prefix}_request_seconds", "Time to the whole answer, streams excepted", ["route"], registry=self.registry
        )
        self.accepted = Counter(f"{prefix}_tasks_accepted", "Tasks stored", registry=self.registry)
        self.replayed = Counter(f"{prefix}_tasks_replayed", "Repeats that got the first task", registry=self.registry)
        self.refused = Counter(f"{prefix}_refusals", "Refusals by code", ["code"], registry=self.registry)
        self.streams = Gauge(f"{prefix}_open_streams", "Event streams open now", registry=self.registry)
        self.dropped = Counter(
            f"{prefix}_streams_dropped", "Streams whose reader took nothing for too long", registry=self.registry
        )
        self.waiting = Gauge(
            "slackwater_deliveries", "Undelivered by webhook", ["webhook", "state"], registry=self.registry
        )
        self.care = Gauge("slackwater_aftercare", "Hooks of ended tasks to be run", ["state"], registry=self.registry)
        self.unknown_tasks = Gauge(
            "slackwater_unknown_tasks", "Tasks whose provider's outcome is not known", registry=self.registry
        )
        self.unknown_oldest = Gauge(
            "slackwater_unknown_oldest_seconds", "Age of the oldest of them", registry=self.registry
        )
        self.tasks = Gauge(
            "slackwater_queue_tasks", "Tasks by queue and state", ["queue", "state"], registry=self.registry
        )
        self.oldest = Gauge(
            "slackwater_queue_oldest_due_seconds", "Age of the oldest due task", ["queue"], registry=self.registry
        )

    @contextmanager
    def stream(self) -> Iterator[None]:
        self.open_streams += 1
        self.streams.set(self.open_streams)
        try:
            yield
        finally:
            self.open_streams -= 1
            self.streams.set(self.open_streams)

    def request(self, route: str | None, method: str, status: int, seconds: float | None) -> None:
        route = route or OTHER
        self.requests.labels(route, method if method in METHODS else OTHER, str(status)).inc()
        if seconds is not None:
            self.seconds.labels(route).observe(seconds)

    def queues(self, stats: Iterable[QueueStats]) -> None:
        """Set from one read of the store; what is not served is added up under one name."""
        sums: dict[tuple[str, str], int] = {}
        ages: dict[str, float] = {}
        for queue in stats:
            name = queue.name if queue.served else OTHER
            for state, count in (("due", queue.due), ("scheduled", queue.scheduled), ("running", queue.running)):
                sums[name, state] = sums.get((name, state), 0) + count
            ages[name] = max(ages.get(name, 0.0), queue.oldest_due_seconds or 0.0)
        self.tasks.clear()
        self.oldest.clear()
        for (name, state), count in sums.items():
            self.tasks.labels(name, state).set(count)
        for name, age in ages.items():
            self.oldest.labels(name).set(age)

    def deliveries(self, backlogs: Iterable[Backlog]) -> None:
        """Webhooks are few and an administrator's, so they may be labels."""
        self.waiting.clear()
        for backlog in backlogs:
            self.waiting.labels(backlog.webhook, "open").set(backlog.open)
            self.waiting.labels(backlog.webhook, "dead").set(backlog.dead)

    def unknown(self, found: Unknown) -> None:
        self.unknown_tasks.set(found.count)
        self.unknown_oldest.set(found.oldest_seconds)

    def aftercare(self, open_: int, dead: int) -> None:
        self.care.labels("open").set(open_)
        self.care.labels("dead").set(dead)

    def text(self) -> bytes:
        return generate_latest(self.registry)
