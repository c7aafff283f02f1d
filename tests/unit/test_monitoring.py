"""manifests/monitoring: every figure it asks for exists, with its labels; every alert has a page; it builds."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from slackwater_operator.names import HEALTH_PORT, LABEL_POOL, Condition
from tests.unit import reference

FOLDER = reference.ROOT / "manifests" / "monitoring"
RUNBOOKS = reference.ROOT / "docs" / "runbooks.md"
DASHBOARD = json.loads((FOLDER / "slackwater.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
METRICS = {series: metric for part in reference.metrics().values() for metric in part for series in metric.series}
OF_THE_TARGET = {"namespace", "pool", "pod"}
"""Labels that scraping adds to a worker's figures."""


def queries() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)
    yield from ((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_exist(where: str, query: str) -> None:
    found = re.findall(r"\b(slackwater_\w+)(?:\{([^}]*)\})?", query)
    assert found, where
    labels: set[str] = set()
    for name, selectors in found:
        assert name in METRICS, f"{where}: {name}"
        allowed = set(METRICS[name].labels) | ({"le"} if name.endswith("_bucket") else set())
        allowed |= OF_THE_TARGET if name.startswith("slackwater_worker_") else set()
        selected = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        assert selected <= allowed, f"{where}: {name} has no label {selected - allowed}"
        labels |= allowed
    for grouping in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
        assert {label.strip() for label in grouping.split(",")} <= labels, f"{where}: ({grouping})"


@pytest.mark.parametrize("condition", sorted(set(re.findall(r'condition="(\w+)"', str(list(queries()))))))
def test_a_condition_that_is_asked_for_exists(condition: str) -> None:
    assert condition in set(Condition)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_its_page_its_severity_and_a_summary_of_labels_that_it_has(rule: dict[str, Any]) -> None:
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert (reference.ROOT / page) == RUNBOOKS
    assert heading == rule["alert"].lower()
    assert f"\n### {rule['alert']}\n" in RUNBOOKS.read_text()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    kept = {word for grouping in re.findall(r"by \(([^)]*)\)", rule["expr"]) for word in grouping.split(", ")}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= kept


def test_every_page_is_of_an_alert() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOKS.read_text(), re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_every_metric_of_the_code_is_on_the_dashboard() -> None:
    asked = " ".join(query for _, query in queries())
    known = {metric.name for part in reference.metrics().values() for metric in part}
    # The conditions of the pools say the first, by pool; a pod's cordon is in the pools' standing.
    seen_otherwise = {"slackwater_operator_store_reachable", "slackwater_worker_cordoned"}
    seen_otherwise |= {"slackwater_worker_claim_seconds"}
    assert {name for name in known if not re.search(rf"\b{name}", asked)} == seen_otherwise


def test_panels_have_their_own_ids_and_places() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.fixture(scope="module")
def built() -> list[dict[str, Any]]:
    kubectl = reference.ROOT / ".venv" / "bin" / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl in .venv: scripts/setup.sh or the cluster's harness makes it")
    run = subprocess.run([kubectl, "kustomize", FOLDER], capture_output=True, text=True, check=True, timeout=60)
    return list(yaml.safe_load_all(run.stdout))


def test_it_builds(built: list[dict[str, Any]]) -> None:
    assert {one["metadata"]["namespace"] for one in built} == {"slackwater"}
    kinds = sorted(one["kind"] for one in built)
    assert kinds == ["ConfigMap", "PodMonitor", "PodMonitor", "PodMonitor", "PrometheusRule"]
    dashboard = next(one for one in built if one["kind"] == "ConfigMap")
    assert json.loads(dashboard["data"]["slackwater.json"]) == DASHBOARD


def test_what_is_scraped_is_there() -> None:
    """Operator and gateway by the labels and the port's name in their Deployments, workers by the pool's label."""
    base = reference.ROOT / "manifests" / "base"
    monitors = {m["metadata"]["name"]: m["spec"] for m in yaml.safe_load_all((FOLDER / "scrape.yaml").read_text())}
    for part in ("operator", "gateway"):
        pod = next(yaml.safe_load_all((base / f"{part}.yaml").read_text()))["spec"]["template"]
        spec = monitors.pop(f"slackwater-{part}")
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        names = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        assert {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]} <= names
    (workers,) = monitors.values()
    assert [e["key"] for e in workers["selector"]["matchExpressions"]] == [LABEL_POOL]
    text = json.dumps(workers)
    assert f":{HEALTH_PORT}" in text
    assert f"_label_{re.sub(r'[^a-z]', '_', LABEL_POOL)}" in text
