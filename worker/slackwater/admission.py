"""Admission: what a full queue answers.

Rule: a refusal is complete whatever the store can tell, and names no internal id. Values in, values out (R-ADMIT-04 to
16, 24): counting and locking are the store's, headers and status codes the gateway's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from slackwater.policy import Policy

DEFAULT_AVERAGE_SECONDS: Final = 120.0
AVERAGE_OVER: Final = 20
"""Latest completed tasks that the average is taken over."""
UNAVAILABLE_RETRY_SECONDS: Final = 5


class Code(StrEnum):
    USER_QUEUE_FULL = "USER_QUEUE_FULL"
    SYSTEM_QUEUE_FULL = "SYSTEM_QUEUE_FULL"
    CHANNEL_QUEUE_FULL = "CHANNEL_QUEUE_FULL"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    QUEUE_CLOSED = "QUEUE_CLOSED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"


@dataclass(frozen=True, slots=True)
class Limits:
    """Only pending tasks count; running ones are reported."""

    user_pending: int = 3
    system_pending: int = 20
    worker_concurrency: int = 4
    weight: float = 1.0
    """The user's share in the fair order."""
    channel_pending: Mapping[str, int] = field(default_factory=dict)
    """By channel; one that is not named has no limit of its own."""

    @staticmethod
    def of(policy: Policy, user_id: str) -> Limits:
        return Limits(
            policy.user_pending_limit,
            policy.system_pending_limit,
            policy.worker_concurrency,
            policy.weight(user_id),
            policy.channel_pending,
        )


@dataclass(frozen=True, slots=True)
class Detail:
    """The body's `detail`: always these seven fields."""

    code: str
    message: str
    queued_count: int
    running_count: int
    queue_ahead: int
    estimated_wait_seconds: int
    limit: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def refused_by(
    *, user_queued: int, system_queued: int, limits: Limits, channel: str = "", channel_queued: int = 0
) -> Code | None:
    """The user's limit first, so that a user over several learns of their own; the channel's last."""
    if user_queued >= limits.user_pending:
        return Code.USER_QUEUE_FULL
    if system_queued >= limits.system_pending:
        return Code.SYSTEM_QUEUE_FULL
    cap = limits.channel_pending.get(channel)
    if cap is not None and channel_queued >= cap:
        return Code.CHANNEL_QUEUE_FULL
    return None


def estimated_wait(queued: int, *, concurrency: int, average_seconds: float) -> int:
    """Whole rounds of all places, each as long as the average task."""
    rounds = math.ceil(max(0, queued) / max(1, concurrency))
    return math.ceil(rounds * average_seconds)


def average_seconds(runs: Iterable[tuple[datetime | None, datetime | None]]) -> float:
    """Mean of the durations above 0 of the latest successful tasks, given as (started, finished)."""
    seconds = [(end - start).total_seconds() for start, end in runs if start is not None and end is not None]
    positive = [s for s in seconds if s > 0][:AVERAGE_OVER]
    return sum(positive) / len(positive) if positive else DEFAULT_AVERAGE_SECONDS


def queue_full(
    code: Code, *, queued: int, running: int, limit: int, concurrency: int, average_seconds: float
) -> Detail:
    wait = estimated_wait(queued, concurrency=concurrency, average_seconds=average_seconds)
    about = _minutes(wait)
    if code is Code.USER_QUEUE_FULL:
        message = (
            f"You have {queued} tasks waiting (limit {limit}) and {running} running. "
            f"Send this one again in about {about}."
        )
    elif code is Code.CHANNEL_QUEUE_FULL:
        message = (
            f"This channel is busy: {queued} tasks are waiting for it (limit {limit}). Try again in about {about}."
        )
    else:
        message = (
            f"The system is busy: {queued} tasks are waiting (limit {limit}) and {running} running. "
            f"Try again in about {about}."
        )
    return Detail(code.value, message, queued, running, queued, wait, limit)


def unavailable() -> Detail:
    """Neither counts nor limits are known, so they are 0; the shape stays the one clients know."""
    message = "The service can't take tasks at the moment. Nothing was stored; try again shortly."
    return Detail(Code.STORE_UNAVAILABLE.value, message, 0, 0, 0, UNAVAILABLE_RETRY_SECONDS, 0)


def retry_after(detail: Detail, *, concurrency: int, average_seconds: float) -> int:
    """Seconds in which, on average, one place comes free; never more than the estimate, never 0."""
    return max(1, min(detail.estimated_wait_seconds, math.ceil(average_seconds / max(1, concurrency))))


def _minutes(seconds: int) -> str:
    minutes = max(1, math.ceil(seconds / 60))
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
