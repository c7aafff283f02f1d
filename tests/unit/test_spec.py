"""WorkerPool → PoolSpec: what is read, with which unit, and which field an error names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from slackwater_operator.errors import InvalidSpec
from slackwater_operator.names import Cause
from slackwater_operator.pods import revision_hash
from slackwater_operator.spec import Amount, duration, parse
from tests.unit.situations import content, pool


def body(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "name": "p", "namespace": "n"}, "spec": {**content("x"), **spec}}


def test_defaults_are_those_of_the_schema() -> None:
    spec = parse(
        {"metadata": {"uid": "u", "name": "p", "namespace": "n"}, "spec": {"template": content("x")["template"]}}
    )
    assert (spec.replicas, spec.concurrency, spec.queues) == (1, 1, ("default",))
    assert spec.drain.deadline == timedelta(minutes=90)
    assert (spec.surge, spec.unavailable) == (1, 0)
    assert spec.deadline(Cause.SPOT) == timedelta(seconds=90)
    assert spec.deadline(Cause.ROLLOUT) == timedelta(minutes=90)
    assert spec.grace == timedelta(minutes=90, seconds=30)


def test_the_default_deadline_is_longer_than_the_longest_permitted_task() -> None:
    assert pool(1).drain.deadline > timedelta(minutes=60)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90m", 5400), ("1h30m", 5400), ("1h0m5s", 3605), ("168h", 604800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration("f", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "0s", "-1s", "1d", "90", "1.5h", "169h", " 1s", "1s ", None, 90])
def test_what_is_no_duration_is_refused_by_field(text: object) -> None:
    with pytest.raises(InvalidSpec) as refused:
        duration("drain.deadline", text)
    assert refused.value.field == "drain.deadline"


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("replicas", {"replicas": -1}),
        ("replicas", {"replicas": 10_001}),
        ("replicas", {"replicas": True}),
        ("replicas", {"replicas": "3"}),
        ("concurrency", {"concurrency": 0}),
        ("admission", {"admission": "Nope"}),
        ("drain.deadline", {"drain": {"deadline": "x"}}),
        ("drain.deadlines", {"drain": {"deadlines": {"Foo": "1m"}}}),
        ("drain.deadlines.Spot", {"drain": {"deadlines": {"Spot": "0s"}}}),
        ("drain.onDeadline", {"drain": {"onDeadline": "Kill"}}),
        ("drain.maxDraining", {"drain": {"maxDraining": 0}}),
        ("rollout.maxSurge", {"rollout": {"maxSurge": "101%"}}),
        ("rollout.maxUnavailable", {"rollout": {"maxUnavailable": "-1%"}}),
        ("rollout", {"rollout": {"maxSurge": 0, "maxUnavailable": "0%"}}),
        ("rollout.partition", {"rollout": {"partition": -1}}),
        ("template.spec.containers", {"template": {"spec": {"containers": [{"name": "x"}]}}}),
        ("disruption.evictionPolicy", {"disruption": {"evictionPolicy": "x"}}),
    ],
)
def test_a_bad_field_is_named(field: str, spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse(body(**spec))
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")


def test_a_long_name_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        parse({"metadata": {"uid": "u", "name": "p" * 41, "namespace": "n"}, "spec": content("x")})


def test_percentages_round_surge_up_and_unavailable_down() -> None:
    assert Amount(10, percent=True).of(3, up=True) == 1
    assert Amount(10, percent=True).of(3, up=False) == 0
    assert Amount(100, percent=True).of(3, up=False) == 3


def test_if_both_round_to_nothing_one_pod_may_be_missing() -> None:
    assert pool(3, rollout={"maxSurge": 0, "maxUnavailable": "10%"}).unavailable == 1
    assert pool(0, rollout={"maxSurge": 0, "maxUnavailable": "10%"}).unavailable == 0


def test_hold_and_drain_wants_no_pods_and_keeps_what_replicas_says() -> None:
    spec = pool(3, admission="HoldAndDrain")
    assert (spec.desired, spec.replicas) == (0, 3)


def test_wait_has_no_deadline_and_seven_days_of_grace() -> None:
    spec = pool(1, drain={"onDeadline": "Wait"})
    assert spec.deadline(Cause.SPOT) is None
    assert spec.grace == timedelta(days=7)


def test_the_revision_is_what_was_written_and_nothing_else() -> None:
    written = parse(body()).content
    assert (
        parse(body(replicas=7, admission="Hold", rollout={"maxSurge": 3}, drain={"deadline": "1m"})).content == written
    )
    assert parse(body(restartedAt=None)).content == written
    for change in ({"concurrency": 2}, {"queues": ["b"]}, {"restartedAt": "2026-01-01T00:00:00Z"}):
        assert parse(body(**change)).content != written
    assert parse(body(storeSecretRef={"name": "other"})).content != written


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    one = {"template": {"a": 1, "b": 2}, "queues": ["q"]}
    other = {"queues": ["q"], "template": {"b": 2, "a": 1}}
    assert revision_hash(one) == revision_hash(other)
    assert revision_hash(one) != revision_hash({**one, "queues": ["r"]})


def test_the_hash_of_a_known_content_never_changes() -> None:
    """An operator with another opinion would roll every pool at its upgrade."""
    assert revision_hash(content("image:1")) == "5b233fe095"
