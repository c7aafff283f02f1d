"""Retry decisions, back-off of full channels, redaction: small pure parts of the runtime."""

from __future__ import annotations

import pytest

from slackwater.backoff import Backoff
from slackwater.logging import redact, user_hash
from slackwater.retry import Exponential, Failure, never
from slackwater.sdk import Context, SyncContext
from slackwater.task import Kind, Registry, TaskType, task


def failure(attempts: int, retry_after: float | None = None) -> Failure:
    return Failure("Error", "text", attempts, retry_after)


def test_a_type_that_declares_nothing_is_never_retried() -> None:
    assert not never(failure(1), lambda: 0.5).again


@pytest.mark.parametrize(("attempts", "low", "high"), [(1, 1, 2), (2, 2, 4), (3, 4, 8), (4, 5, 10)])
def test_waits_double_up_to_the_cap_and_lie_in_the_upper_half(attempts: int, low: float, high: float) -> None:
    policy = Exponential(9, first_seconds=2, cap_seconds=10)
    assert policy(failure(attempts), lambda: 0.0).after_seconds == low
    assert policy(failure(attempts), lambda: 1.0).after_seconds == high


def test_retries_are_used_up_after_that_many() -> None:
    policy = Exponential(2)
    assert [policy(failure(n), lambda: 0.5).again for n in (1, 2, 3)] == [True, True, False]


def test_a_providers_retry_after_is_waited_for_at_least() -> None:
    assert Exponential(1, first_seconds=2)(failure(1, 60.0), lambda: 0.5).after_seconds == 60.0


def test_a_full_channel_is_left_alone_for_doubling_windows_each_in_its_upper_half() -> None:
    dice = iter([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    backoff = Backoff(lambda: next(dice))
    waits = [backoff.full("channel", 100.0) for _ in range(6)]
    assert waits == [0.1, 0.4, 0.4, 1.6, 1.0, 2.0]
    assert backoff.waiting(101.9) == {"channel"}
    assert backoff.waiting(102.1) == frozenset()


def test_a_success_forgets_the_back_off() -> None:
    backoff = Backoff(lambda: 1.0)
    backoff.full("channel", 0.0)
    backoff.full("channel", 0.0)
    backoff.taken("channel")
    assert backoff.waiting(0.0) == frozenset()
    assert backoff.full("channel", 0.0) == 0.2


def test_long_unused_back_offs_are_forgotten() -> None:
    backoff = Backoff(lambda: 1.0)
    backoff.full("user-1", 0.0)
    backoff.full("user-2", 100.0)
    assert backoff.full("user-1", 100.0) == 0.2


def test_passwords_in_urls_are_redacted_and_users_are_hashed() -> None:
    assert redact("at postgresql://me:hunter2@db:5432/x?a=b") == "at postgresql://me:***@db:5432/x?a=b"
    assert redact("connection to host=db password='hunter 2' failed") == "connection to host=db password=*** failed"
    assert redact("rediss://:hunter2@redis/0") == "rediss://:***@redis/0"
    assert "alice" not in user_hash("alice")
    assert user_hash("alice") == user_hash("alice") != user_hash("bob")


async def coroutine(_ctx: Context, _payload: object) -> None: ...


def plain(_ctx: SyncContext, _payload: object) -> None: ...


def test_the_kind_follows_from_the_function() -> None:
    registry = Registry()
    for declared in (
        TaskType("a", coroutine, Kind.COROUTINE),
        TaskType("b", plain, Kind.PROCESS),
    ):
        registry.add(declared)
    assert registry.names == ("a", "b")
    with pytest.raises(ValueError, match="threaded"):
        task("c", threaded=True)(coroutine)


def test_one_name_is_one_function() -> None:
    registry = Registry()
    registry.add(TaskType("a", coroutine, Kind.COROUTINE))
    registry.add(TaskType("a", coroutine, Kind.COROUTINE, queue="other"))  # the same function, reloaded
    with pytest.raises(ValueError, match="twice"):
        registry.add(TaskType("a", plain, Kind.PROCESS))


@pytest.mark.parametrize(
    "wrong",
    [
        {"silence_seconds": 601},
        {"silence_seconds": 0},
        {"hard_timeout_seconds": 0},
        {"stale_seconds": 10, "hard_timeout_seconds": 10},
        {"cost": 0},
        {"on_interrupt": "retry"},
    ],
)
def test_impossible_declarations_are_refused_at_import(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        task("wrong", **wrong)(plain)  # type: ignore[arg-type]
