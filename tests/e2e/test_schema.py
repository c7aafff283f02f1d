"""What the API server itself refuses, naming the field and the limit: C114, C116, C120. Dry runs; nothing is made."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import pytest
from kubernetes.client.exceptions import ApiException

from tests.kit.kube import GROUP, PLURAL, VERSION
from tests.kit.pools import Stage

POD: dict[str, Any] = {"containers": [{"name": "worker", "image": "x"}]}
GOOD: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "WorkerPool",
    "metadata": {"name": "t"},
    "spec": {"template": {"spec": POD}},
}


def ask(stage: Stage, body: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    """The object as it would be stored."""
    found = stage.kube.custom.create_namespaced_custom_object(
        GROUP,
        VERSION,
        stage.kube.namespace,
        PLURAL,
        body,
        dry_run="All",
        field_validation="Strict" if strict else "Warn",
    )
    return cast(dict[str, Any], found)


def refused(stage: Stage, body: dict[str, Any]) -> str:
    with pytest.raises(ApiException) as error:
        ask(stage, body)
    assert error.value.status in (400, 422)
    return str(json.loads(error.value.body or "{}")["message"])


def pool(name: str = "t", **spec: Any) -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    body["metadata"]["name"] = name
    body["spec"].update(spec)
    return body


def template(meta: dict[str, Any] | None = None, container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    containers = [{**POD["containers"][0], **(container or {})}]
    return {"template": {"metadata": meta or {}, "spec": {"containers": containers, **pod}}}


def test_everything_outside_the_template_has_its_default_and_nothing_inside(stage: Stage) -> None:
    spec = ask(stage, GOOD)["spec"]
    assert (spec["replicas"], spec["concurrency"], spec["queues"]) == (1, 1, ["default"])
    assert spec["drain"] == {"deadline": "90m", "deadlines": {"Spot": "90s"}, "maxDraining": 3, "onDeadline": "Fence"}
    assert spec["rollout"]["maxSurge"] == 1
    assert spec["template"] == {"spec": POD}


@pytest.mark.parametrize("replicas", [-1, "", "3", 1.5, 10_001, 2_147_483_648])
def test_replicas_is_a_whole_number_from_0_to_10000(stage: Stage, replicas: Any) -> None:
    assert "spec.replicas" in refused(stage, pool(replicas=replicas))


def test_a_null_is_as_if_it_was_not_there(stage: Stage) -> None:
    assert ask(stage, pool(replicas=None))["spec"]["replicas"] == 1
    ask(stage, pool(restartedAt=None))


@pytest.mark.parametrize("name", ["a" * 41, "a.b", "9a"])
def test_a_name_that_pods_could_not_carry_is_refused_with_the_limit(stage: Stage, name: str) -> None:
    assert "metadata.name must be a DNS label of at most 40 characters" in refused(stage, pool(name))


@pytest.mark.parametrize("name", ["a" * 40, "a-1"])
def test_any_other_name_is_fine(stage: Stage, name: str) -> None:
    ask(stage, pool(name))


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        ("drain.deadline", {"drain": {"deadline": "-1"}}),
        ("drain.deadline", {"drain": {"deadline": "0s"}}),
        ("drain.deadline", {"drain": {"deadline": "169h"}}),
        ("must be a duration between 1s and 168h", {"drain": {"deadline": "0s"}}),
        ("drain.deadlines.Spot", {"drain": {"deadlines": {"Spot": "0s"}}}),
        ("drain.maxDraining", {"drain": {"maxDraining": 0}}),
        ("maxSurge and rollout.maxUnavailable must not both be 0", {"rollout": {"maxSurge": 0}}),
        ("must not both be 0", {"rollout": {"maxSurge": "0%", "maxUnavailable": "0%"}}),
        ("rollout.maxSurge", {"rollout": {"maxSurge": "101%"}}),
        ("rollout.maxUnavailable", {"rollout": {"maxUnavailable": -1}}),
        ("rollout.partition", {"rollout": {"partition": -1}}),
        ("spec.queues", {"queues": []}),
        ("spec.queues", {"queues": ["a", "a"]}),
        ("spec.concurrency", {"concurrency": 0}),
        ("spec.admission", {"admission": "Nope"}),
        ("spec.restartedAt", {"restartedAt": "yesterday"}),
        ("must have a container named `worker`", template(container={"name": "other"})),
        ("image", template(container={"image": ""})),
        ("restartPolicy", template(restartPolicy="Never")),
        ("terminationGracePeriodSeconds must not be set", template(terminationGracePeriodSeconds=5)),
        ("labels must not use slackwater.dev/", template({"labels": {"slackwater.dev/pool": "x"}})),
        ("labels", template({"labels": {"a": "b" * 64}})),
        ('unknown field "spec.drainTimeoutt"', {"drainTimeoutt": 600}),
        ('unknown field "spec.drain.deadlines.Foo"', {"drain": {"deadlines": {"Foo": "1m"}}}),
    ],
)
def test_what_can_not_be_is_refused_by_name(stage: Stage, words: str, spec: dict[str, Any]) -> None:
    assert words in refused(stage, pool(**spec))


def test_with_validation_off_a_mistyped_field_is_pruned_and_the_value_in_force_shows(stage: Stage) -> None:
    spec = ask(stage, pool(drainTimeoutt=600), strict=False)["spec"]
    assert "drainTimeoutt" not in spec
    assert spec["drain"]["deadline"] == "90m"
