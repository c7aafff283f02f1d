"""The pod that a revision makes."""

from __future__ import annotations

from typing import Any

from slackwater_operator.pods import manifest
from slackwater_operator.spec import PoolSpec
from tests.unit.situations import content, pool


def made(spec: PoolSpec | None = None, **pod_spec: Any) -> dict[str, Any]:
    what = content("img")
    what["template"]["spec"].update(pod_spec)
    return manifest(spec or pool(1), "rev", what, "p-rev-0")


def worker(pod: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in pod["spec"]["containers"] if c["name"] == "worker")


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in worker(pod)["env"]}


def test_it_is_controlled_by_the_pool_and_blocks_no_deletion() -> None:
    owner = made()["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("pool", True, False)
    assert "finalizers" not in made()["metadata"]


def test_the_grace_is_the_deadline_and_thirty_seconds_and_the_worker_is_told() -> None:
    pod = made(pool(1, drain={"deadline": "10m"}))
    assert pod["spec"]["terminationGracePeriodSeconds"] == 630
    assert env(pod)["SLACKWATER_GRACE_SECONDS"] == "630"


def test_it_knows_who_it_is_and_where_its_store_is() -> None:
    found = env(made())
    assert found["SLACKWATER_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert found["SLACKWATER_POOL_UID"] == "pool"
    assert found["SLACKWATER_REVISION"] == "rev"
    assert found["DATABASE_URL"] == {"secretKeyRef": {"name": "slackwater-store", "key": "DATABASE_URL"}}
    assert found["DATABASE_DIRECT_URL"]["secretKeyRef"]["optional"] is True


def test_the_template_cannot_take_another_identity() -> None:
    mine = {"name": "SLACKWATER_POD_UID", "value": "fake"}
    pod = made(containers=[{"name": "worker", "image": "i", "env": [mine, {"name": "A", "value": "b"}]}])
    assert env(pod)["SLACKWATER_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert env(pod)["A"] == "b"


def test_a_hung_worker_is_killed_in_thirty_seconds_not_at_the_drains_deadline() -> None:
    assert worker(made())["livenessProbe"]["terminationGracePeriodSeconds"] == 30


def test_the_kubelet_can_name_the_worker_that_ended() -> None:
    found = worker(made())
    assert (found["terminationMessagePath"], found["terminationMessagePolicy"]) == ("/dev/termination-log", "File")


def test_only_one_worker_can_run_in_it() -> None:
    pod = made()
    mount = next(m for m in worker(pod)["volumeMounts"] if m["mountPath"] == env(pod)["SLACKWATER_RUN_DIR"])
    assert any(v["name"] == mount["name"] and "emptyDir" in v for v in pod["spec"]["volumes"])


def test_a_node_that_is_cut_off_keeps_it_as_long_as_a_drain_may_take() -> None:
    found = {t["key"]: t["tolerationSeconds"] for t in made(pool(1, drain={"deadline": "10m"}))["spec"]["tolerations"]}
    assert found == {"node.kubernetes.io/not-ready": 600, "node.kubernetes.io/unreachable": 600}
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    tolerations = made(tolerations=[own])["spec"]["tolerations"]
    assert [t["tolerationSeconds"] for t in tolerations if t["key"] == own["key"]] == [5]


def test_it_passes_the_restricted_pod_security_standard_unless_the_template_says_otherwise() -> None:
    pod = made()
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert worker(pod)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert made(securityContext={"runAsNonRoot": False})["spec"]["securityContext"]["runAsNonRoot"] is False


def test_its_labels_are_the_templates_and_ours() -> None:
    what = content("img")
    what["template"]["metadata"] = {"labels": {"team": "a"}}
    labels = manifest(pool(1), "rev", what, "p-rev-0")["metadata"]["labels"]
    assert labels == {"team": "a", "slackwater.dev/pool": "p", "slackwater.dev/revision": "rev"}


def test_making_a_pod_leaves_the_revision_as_it_is() -> None:
    what = content("img")
    manifest(pool(1), "rev", what, "p-rev-0")
    assert what == content("img")
