"""The commands, whole, against a small API server: what is printed, what is sent, how they end."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slackwater_operator.cli import main as plugin
from tests.unit.plugin_cluster import NEW, OLD, REVISIONS, Cluster, draining, pod, pool, served

DOCS = Path(__file__).parents[2] / "docs"
NAME = f"reports-{NEW}-0"
Run = Callable[..., tuple[int, str, str]]
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {{name: one, context: {{cluster: here, namespace: shop}}}}
- {{name: two, context: {{cluster: here}}}}
clusters:
- {{name: here, cluster: {{server: "{server}"}}}}
users: []
"""


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(pod(NAME), draining(), pod("stranger", owned=False))


@pytest.fixture
def run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    def go(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kubectl-slackwater", *words])
        code = 0
        try:
            plugin.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err

    with served(cluster) as server:
        file = tmp_path / "config"
        file.write_text(KUBECONFIG.format(server=server))
        monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield go


def test_status_is_plain_in_a_pipe(run: Run) -> None:
    code, out, err = run("status", "reports")
    assert (code, err) == (0, "")
    assert out.startswith("shop/reports  desired 2  ready 2")
    assert f"reports-{OLD}-0  Draining" in out
    assert "stranger" not in out
    assert "\x1b" not in out


@pytest.mark.parametrize("words", [("-o", "json", "status", "reports"), ("status", "reports", "-ojson")])
def test_json_is_understood_wherever_it_stands(run: Run, words: tuple[str, ...]) -> None:
    code, out, _ = run(*words)
    assert code == 0
    assert [r["name"] for r in json.loads(out)["revisions"]] == [NEW, OLD]


def test_watch_prints_when_something_changed(run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(4))

    async def pause(_: float) -> None:
        match next(rounds):
            case 1:
                cluster.pool()["status"]["readyReplicas"] = 1
            case 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "sleep", pause)
    code, out, _ = run("status", "reports", "--watch", "-o", "json")
    assert code == 130
    assert [json.loads(line)["ready"] for line in out.splitlines()] == [2, 1]


def test_why(run: Run) -> None:
    code, out, _ = run("why", f"reports-{OLD}-0")
    assert code == 0
    assert "because another revision replaces it" in out
    found = json.loads(run("why", NAME, "-o", "json")[1])
    assert (found["because"], found["pool"]) == ("Wanted", "reports")


def test_pause_and_resume(run: Run, cluster: Cluster) -> None:
    assert run("pause", "reports") == (0, "reports paused\n", "")
    assert cluster.pool()["spec"]["rollout"]["paused"] is True
    assert run("pause", "reports")[1] == "reports was paused already\n"
    assert "paused" in run("restart", "reports")[2]
    assert run("resume", "reports") == (0, "reports resumed\n", "")
    assert cluster.pool()["spec"]["rollout"] == pool()["spec"]["rollout"]


def test_restart_sets_the_time(run: Run, cluster: Cluster) -> None:
    code, out, _ = run("restart", "reports", "-o", "json")
    assert code == 0
    assert json.loads(out) == {"pool": "reports", "namespace": "shop", "changed": True, "message": "reports restarts"}
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", cluster.pool()["spec"]["restartedAt"])


@pytest.mark.parametrize(("words", "number"), [((), 1), (("--to", "2"), 2), (("--to", OLD), 1)])
def test_rollback_writes_the_revision_back(run: Run, cluster: Cluster, words: tuple[str, ...], number: int) -> None:
    code, out, _ = run("rollback", "reports", *words)
    assert code == 0, out
    want = REVISIONS[number - 1]["data"]
    spec = cluster.pool()["spec"]
    assert {key: spec[key] for key in want} == want
    assert spec["replicas"] == 2


def test_rollback_repeats_when_only_the_status_changed(run: Run, cluster: Cluster) -> None:
    cluster.conflicts = 2
    assert run("rollback", "reports")[0] == 0
    assert len(cluster.sent) == 1


def test_rollback_does_not_overwrite_what_another_has_written(run: Run, cluster: Cluster) -> None:
    cluster.conflicts = 99
    assert run("rollback", "reports")[0] == 1
    assert cluster.sent == []


def test_drain_and_undrain(run: Run, cluster: Cluster) -> None:
    assert run("drain", NAME) == (0, f"{NAME} drains\n", "")
    assert cluster.pod(NAME)["metadata"]["annotations"]["slackwater.dev/drain-cause"] == "Admin"
    assert run("drain", NAME)[1] == f"{NAME} drains already (Admin)\n"
    assert run("undrain", NAME) == (0, f"{NAME}: drain called off (was Admin)\n", "")
    assert cluster.pod(NAME)["metadata"]["annotations"] == {}
    assert "not asked for by hand" in run("undrain", f"reports-{OLD}-0")[2]


def test_history(run: Run) -> None:
    code, out, _ = run("history", "reports")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["NUMBER", "3*", "2", "1"]
    assert [r["outcome"] for r in json.loads(run("history", "reports", "-ojson")[1])] == ["-", "failed", "completed"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("status", "nope"), 5, "no WorkerPool nope in namespace shop"),
        (("status", "reports", "-n", "else"), 5, "no WorkerPool reports in namespace else"),
        (("status", "reports", "--context", "two"), 5, "in namespace default"),
        (("status", "reports", "--context=two", "--namespace=shop"), 0, ""),
        (("why", "nope"), 5, "no pod nope in namespace shop"),
        (("drain", "stranger"), 1, "belongs to no WorkerPool"),
        (("rollback", "reports", "--to", "9"), 5, "no revision 9"),
        (("status", "reports", "--context", "three"), 2, "three"),
        (("status", "wp/reports"), 0, ""),
        (("status", "workerpools.slackwater.dev/reports"), 0, ""),
        (("why", f"pod/{NAME}"), 0, ""),
        (("why", "../pods"), 2, "is no name"),
        (("status", "reports/status"), 2, "is no name"),
        (("status", "reports", "-n", "a/b"), 2, "is no name"),
        (("status",), 2, "POOL"),
        (("stauts", "reports"), 2, "stauts"),
        (("status", "reports", "-o", "yaml"), 2, "yaml"),
    ],
)
def test_how_they_end(run: Run, words: tuple[str, ...], code: int, said: str) -> None:
    found, _, err = run(*words)
    assert (found, said in err) == (code, True), err


def test_an_api_server_that_is_away_is_a_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "away"
    file.write_text(KUBECONFIG.format(server="http://127.0.0.1:1"))
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    code, _, err = run("status", "reports")
    assert code == 1
    assert "no answer" in err


@pytest.mark.parametrize("text", ["", "[", "a: b", "contexts: 7"])
def test_a_kubeconfig_that_is_none(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "odd"
    file.write_text(text)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    assert run("status", "reports")[0] == 2


def test_without_any_kubeconfig(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    code, _, err = run("status", "reports")
    assert code == 2
    assert "KUBECONFIG" in err


def test_every_command_has_its_page() -> None:
    page = (DOCS / "kubectl.md").read_text()
    names = {c.name or (c.callback.__name__ if c.callback else "") for c in plugin.app.registered_commands}
    assert len(names) == 9
    assert [name for name in names if f"kubectl slackwater {name}" not in page] == []
    assert set(re.findall(r"kubectl slackwater ([a-z]+)", page)) <= names


def test_exit_codes_are_on_their_page() -> None:
    page = (DOCS / "exit-codes.md").read_text()
    section: Any = page.partition("## kubectl slackwater")[2]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == {e.value for e in plugin.Exit}
