"""The worker's figures for Prometheus. Rule: labels are bounded: results, reasons and the types this process knows."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

RUNNING = Gauge("slackwater_worker_running", "Executions in this process.", registry=REGISTRY)
CONCURRENCY = Gauge("slackwater_worker_concurrency", "Executions this process may hold.", registry=REGISTRY)
CORDONED = Gauge("slackwater_worker_cordoned", "1 once this pod takes no new task.", registry=REGISTRY)
PAUSED = Gauge(
    "slackwater_worker_claiming_paused", "1 while claiming pauses, by reason.", ["reason"], registry=REGISTRY
)
LOOP_AGE = Gauge("slackwater_worker_loop_age_seconds", "Since the main loop last turned.", registry=REGISTRY)
CLAIMS = Counter(
    "slackwater_worker_claims", "Claims tried: granted, taken, full, no_answer, lost.", ["result"], registry=REGISTRY
)
ENDED = Counter("slackwater_worker_ended", "Executions, by how they ended.", ["type", "how"], registry=REGISTRY)
FENCED = Counter(
    "slackwater_worker_fenced",
    "Executions that found their claim taken; their writes changed nothing.",
    registry=REGISTRY,
)
RENEWALS = Counter(
    "slackwater_worker_renewals", "Lease renewals: held, refused, no_answer.", ["result"], registry=REGISTRY
)
SLOT_RENEWALS = Counter(
    "slackwater_worker_slot_renewals", "Slot renewals: held, denied, lost, no_answer.", ["result"], registry=REGISTRY
)
PICKUP = Histogram("slackwater_worker_claim_seconds", "From asking for slots to the claim's answer.", registry=REGISTRY)
RUN_SECONDS = Histogram(
    "slackwater_worker_run_seconds",
    "From the claim to its end.",
    ["type"],
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200),
    registry=REGISTRY,
)
