"""What a full queue answers: both bodies, the estimate, and what happens without figures (R-ADMIT, R-TEST-16 to 19)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.admission import (
    Code,
    Limits,
    average_seconds,
    estimated_wait,
    queue_full,
    refused_by,
    retry_after,
    unavailable,
)

FIELDS = {
    "code",
    "message",
    "queued_count",
    "running_count",
    "queue_ahead",
    "estimated_wait_seconds",
    "limit",
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def lasting(*seconds: float) -> list[tuple[datetime | None, datetime | None]]:
    return [(START, START + timedelta(seconds=s)) for s in seconds]


def test_the_refusal_of_a_full_user_has_the_example_values() -> None:
    detail = queue_full(
        Code.USER_QUEUE_FULL, queued=3, running=2, limit=3, concurrency=4, average_seconds=120
    ).as_dict()
    message = detail.pop("message")
    assert detail == {
        "code": "USER_QUEUE_FULL",
        "queued_count": 3,
        "running_count": 2,
        "queue_ahead": 3,
        "estimated_wait_seconds": 120,
        "limit": 3,
    }
    assert all(part in message for part in ("3 tasks waiting", "limit 3", "2 running", "2 minutes"))


def test_the_refusal_of_a_full_system_has_the_example_values() -> None:
    detail = queue_full(
        Code.SYSTEM_QUEUE_FULL, queued=20, running=4, limit=20, concurrency=4, average_seconds=120
    ).as_dict()
    message = detail.pop("message")
    assert detail == {
        "code": "SYSTEM_QUEUE_FULL",
        "queued_count": 20,
        "running_count": 4,
        "queue_ahead": 20,
        "estimated_wait_seconds": 600,
        "limit": 20,
    }
    assert all(part in message for part in ("busy", "20 tasks", "4 running", "10 minutes"))


def test_an_unreachable_store_is_refused_in_the_same_shape() -> None:
    assert set(unavailable().as_dict()) == FIELDS


@pytest.mark.parametrize(
    ("user", "system", "expected"),
    [
        (0, 0, None),
        (2, 19, None),
        (3, 19, Code.USER_QUEUE_FULL),
        (4, 19, Code.USER_QUEUE_FULL),
        (2, 20, Code.SYSTEM_QUEUE_FULL),
        (3, 20, Code.USER_QUEUE_FULL),
    ],
)
def test_the_users_limit_is_checked_before_the_systems(user: int, system: int, expected: Code | None) -> None:
    assert refused_by(user_queued=user, system_queued=system, limits=Limits()) is expected


@pytest.mark.parametrize(
    ("queued", "concurrency", "average", "seconds"),
    [
        (8, 4, 120, 240),
        (3, 4, 120, 120),
        (20, 4, 120, 600),
        (0, 4, 120, 0),
        (1, 4, 0.2, 1),
        (5, 4, 10.4, 21),
        (3, 0, 10, 30),
        (-1, 4, 10, 0),
    ],
)
def test_the_wait_is_whole_rounds_of_all_places(queued: int, concurrency: int, average: float, seconds: int) -> None:
    assert estimated_wait(queued, concurrency=concurrency, average_seconds=average) == seconds


@pytest.mark.parametrize(
    ("runs", "average"),
    [
        ([], 120),
        (lasting(-5, 0), 120),
        (lasting(60, 180), 120),
        (lasting(30, -1000, 0), 30),
        ([(None, START), (START, None), *lasting(10)], 10),
        (lasting(*([10] * 20), 10_000), 10),
    ],
)
def test_the_average_takes_the_latest_twenty_durations_above_zero(
    runs: list[tuple[datetime | None, datetime | None]], average: float
) -> None:
    assert average_seconds(runs) == average


@pytest.mark.parametrize(
    ("queued", "concurrency", "average", "seconds"),
    [(3, 4, 120, 30), (20, 4, 120, 30), (20, 1, 120, 120), (3, 4, 0.1, 1), (1, 1, 2.5, 3), (0, 4, 120, 1)],
)
def test_a_client_is_asked_back_when_a_place_should_be_free(
    queued: int, concurrency: int, average: float, seconds: int
) -> None:
    detail = queue_full(
        Code.USER_QUEUE_FULL,
        queued=queued,
        running=0,
        limit=3,
        concurrency=concurrency,
        average_seconds=average,
    )
    assert retry_after(detail, concurrency=concurrency, average_seconds=average) == seconds
