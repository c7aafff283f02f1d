"""Wishes become patches that say no more than was asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater_operator import reading
from slackwater_operator.actions import CallOff, Drain
from slackwater_operator.cli import change
from slackwater_operator.cli.survey import content_of
from slackwater_operator.names import Cause
from slackwater_operator.plan import plan
from tests.unit import situations
from tests.unit.plugin_cluster import NEW, NOW, OLD, REVISIONS, at, content, draining, pod, pool, revision
from tests.unit.situations import World, serving

FOUND = [reading.revision(r) for r in REVISIONS]
CAUSE = "slackwater.dev/drain-cause"


@pytest.mark.parametrize(
    ("stands", "wanted", "patch"),
    [
        (False, True, {"spec": {"rollout": {"paused": True}}}),
        (True, False, {"spec": {"rollout": {"paused": False}}}),
        (True, True, None),
        (False, False, None),
    ],
)
def test_pause_and_resume(stands: bool, wanted: bool, patch: Any) -> None:
    assert change.paused(pool(rollout={"paused": stands}), wanted).patch == patch


def test_a_pool_that_says_nothing_of_rollouts_is_not_paused() -> None:
    assert change.paused(pool(rollout=None), False).patch is None


def test_restart_is_a_new_time() -> None:
    assert change.restart(pool(), NOW).patch == {"spec": {"restartedAt": "2026-05-04T10:00:00Z"}}


@pytest.mark.parametrize(
    ("to", "name"),
    [(None, OLD), ("1", OLD), (OLD, OLD), ("2", "bad0000000"), (NEW, NEW)],
)
def test_where_a_rollback_goes(to: str | None, name: str) -> None:
    assert change.target(pool(), FOUND, to).name == name


@pytest.mark.parametrize("to", ["9", "9c2f", ""])
def test_no_such_revision_names_those_that_are_there(to: str) -> None:
    with pytest.raises(change.NoSuchRevision, match=rf"3 \({NEW}\), 2 \(bad0000000\), 1 \({OLD}\)"):
        change.target(pool(), FOUND, to)


def test_what_never_completed_is_gone_back_to_by_name_only() -> None:
    with pytest.raises(change.NoSuchRevision, match="--to"):
        change.target(pool(), FOUND[1:], None)


def test_a_rollback_takes_out_what_the_revision_did_not_have() -> None:
    now = pool()
    now["spec"]["template"]["metadata"] = {"labels": {"team": "b"}}
    now["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "fast"}
    made = change.rollback(now, FOUND[0])
    assert made.patch is not None
    assert made.patch["metadata"] == {"resourceVersion": "1200"}
    assert made.patch["spec"]["template"]["spec"]["nodeSelector"] is None
    assert made.patch["spec"]["template"]["metadata"] is None
    assert set(made.patch["spec"]) == {"template", "restartedAt"}  # the rest is as it was
    after = change.merged(now, made.patch)
    assert content_of(after) == REVISIONS[0]["data"]
    assert after["spec"]["replicas"] == 2


def test_a_rollback_to_what_stands_changes_nothing() -> None:
    assert change.rollback(pool(), FOUND[2]).patch is None


def test_what_a_merge_patch_can_not_say_is_refused() -> None:
    odd = content("app:0")
    odd["template"]["spec"]["x"] = None
    with pytest.raises(change.Impossible, match="null"):
        change.rollback(pool(), reading.revision(revision(9, "odd", odd)))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (pod("p"), "Admin"),
        (draining(cause="Rollout"), "Admin"),
        (draining(cause="ScaleDown"), "Admin"),
        (draining(cause="NodeDrain"), None),
        (draining(cause="Spot"), None),
        (draining(cause="Admin"), None),
        (pod("p", deletionTimestamp=at(3)), None),
    ],
)
def test_drain_overrides_only_what_the_operator_might_call_off(body: dict[str, Any], value: str | None) -> None:
    wanted = {"metadata": {"uid": body["metadata"]["uid"], "annotations": {CAUSE: value}}} if value else None
    assert change.drain(reading.pod(body)).patch == wanted


def test_undrain_takes_the_annotation_off() -> None:
    body = draining(cause="Admin")
    assert change.undrain(reading.pod(body)).patch == {
        "metadata": {"uid": body["metadata"]["uid"], "annotations": {CAUSE: None}}
    }
    assert change.undrain(reading.pod(pod("p"))).patch is None
    with pytest.raises(change.Impossible, match="being deleted"):
        change.undrain(reading.pod(pod("p", deletionTimestamp=at(3))))


@pytest.mark.parametrize(("cause", "told"), [("Admin", False), ("Rollout", True), ("NodeDrain", True)])
def test_a_drain_with_a_reason_of_its_own_comes_back(cause: str, told: bool) -> None:
    assert bool(change.comes_back(reading.pod(draining(cause=cause)))) is told


TREES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), TREES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_difference_makes_one_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = change.difference(before, after)
    assert change.merged(before, patch) == after
    assert (patch == {}) == (before == after)


def test_the_operator_takes_the_wishes_as_its_own() -> None:
    """The plan over a pod with, and then without, the annotation that the plugin writes."""
    asked = serving("a").but(cause=Cause.ADMIN.value)
    drains = plan(situations.pool(2), World((asked, serving("b"))).seen(), situations.NOW).actions
    assert [(a.uid, a.cause) for a in drains if isinstance(a, Drain)] == [("a", "Admin")]
    for annotated, lifted in ((True, []), (False, ["a"])):
        cordoned = serving("a").busy().cordoned(Cause.ADMIN, annotated=annotated)
        actions = plan(situations.pool(2), World((cordoned, serving("b"))).seen(), situations.NOW).actions
        assert [a.uid for a in actions if isinstance(a, CallOff)] == lifted
