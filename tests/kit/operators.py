"""Operators as processes of the test, with the shipped rights, that live or die as told.

Rule: one at a time. A killed one's Lease is removed, which is what its expiry would come to: the process is provably
dead, and the wait for the Lease has tests of its own.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kit.kube import Kube
from tests.kit.waiting import until

LEASE = "slackwater-operator"
ACCOUNT = "slackwater-operator"


@dataclass(frozen=True)
class Doom:
    """Die `when` (before or after) the `number`-th call of `kind`; kind `step`: of those that bring the pool on."""

    kind: str
    number: int
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.kind} #{self.number}"


@dataclass(frozen=True)
class Call:
    kind: str
    number: int


class Process:
    """One operator."""

    def __init__(self, pid: int, doom: Doom | None, ledger: Path, log: Path) -> None:
        self.pid, self.doom, self.log = pid, doom, log
        self._ledger = ledger

    @property
    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    def _lines(self) -> list[dict[str, Any]]:
        text = self._ledger.read_text() if self._ledger.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    @property
    def died_at(self) -> str:
        """Where it met its doom; empty if it did not."""
        return next((f"{x['when']} {x['kind']} #{x['number']}" for x in self._lines() if x["dies"]), "")

    def calls(self) -> list[Call]:
        """What it asked for, in order."""
        return [Call(x["kind"], x["number"]) for x in self._lines() if x["when"] == "before"]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.until_dead(10)

    def until_dead(self, seconds: float) -> None:
        until(f"process {self.pid} is gone", seconds, lambda: not self.alive, every=0.02)


class Operators:
    """Starts them, all in the network of the calling thread."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self._kube, self._folder = kube, folder
        self._numbers = itertools.count(1)
        self._env = self._environment()
        root = Path(__file__).parents[2]
        sources = os.pathsep.join(str(root / part) for part in ("operator", "worker", "."))
        self._launcher = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.doomed_operator"],
            cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **self._env, "PYTHONPATH": sources},
        )  # fmt: skip

    def close(self) -> None:
        """Every operator that still runs ends with the launcher."""
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.close()
        self._launcher.stdout.close()
        self._launcher.wait(10)
        self._forget_lease()

    def start(self, doom: Doom | None = None) -> Process:
        number = next(self._numbers)
        ledger, log = self._folder / f"{number:04}.ledger", self._folder / f"{number:04}.log"
        order = {
            "env": {"POD_NAME": f"test-operator-{number}"},
            "doom": doom and {"kind": doom.kind, "number": doom.number, "when": doom.when},
            "ledger": str(ledger),
            "log": str(log),
        }
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(json.dumps(order) + "\n")
        self._launcher.stdin.flush()
        return Process(int(self._launcher.stdout.readline()), doom, ledger, log)

    @contextmanager
    def running(self, doom: Doom | None = None) -> Iterator[Process]:
        """Killed at the end of the block, if it is still alive."""
        process = self.start(doom)
        try:
            yield process
        finally:
            process.kill()
            self._forget_lease()

    def _forget_lease(self) -> None:
        self._kube.kubectl("delete", "lease", LEASE, "--ignore-not-found")

    def _environment(self) -> dict[str, str]:
        """What the Deployment gives its pods, with addresses for names: cluster DNS serves pods only."""
        secret = json.loads(self._kube.kubectl("get", "secret", "slackwater-store", "-o", "json"))["data"]
        settings = json.loads(self._kube.kubectl("get", "configmap", "slackwater-settings", "-o", "json"))["data"]
        urls = {key: base64.b64decode(value).decode() for key, value in secret.items()}
        for service in ("postgres", "redis"):
            address = "{}:{}".format(*self._kube.service_address(service))
            port = address.rpartition(":")[2]
            urls = {key: url.replace(f"{service}:{port}/", f"{address}/") for key, url in urls.items()}
        return {
            **urls,
            **settings,
            "KUBECONFIG": str(self._kubeconfig()),
            "POD_NAMESPACE": self._kube.namespace,
            "SLACKWATER_OPERATOR_HTTP_HOST": "127.0.0.1",
            "SLACKWATER_OPERATOR_HTTP_PORT": "0",
        }

    def _kubeconfig(self) -> Path:
        """The rights of the operator's own service account, by a token of it."""
        token = self._kube.kubectl("create", "token", ACCOUNT, "--duration=4h").strip()
        whole = yaml.safe_load(self._kube.access.kubeconfig.read_text())
        [server] = whole["clusters"]
        user, context = {"name": ACCOUNT, "user": {"token": token}}, {"cluster": server["name"], "user": ACCOUNT}
        path = self._folder / "operator.kubeconfig"
        path.write_text(
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "clusters": [server], "users": [user],
                "contexts": [{"name": ACCOUNT, "context": context}], "current-context": ACCOUNT,
            })
        )  # fmt: skip
        path.chmod(0o600)
        return path


@contextmanager
def without_the_deployment(kube: Kube) -> Iterator[None]:
    """The installed operator is away for the length of the block."""
    kube.kubectl("scale", "deployment/slackwater-operator", "--replicas=0")
    selector = "app.kubernetes.io/component=operator"
    until("the operator's pods are gone", 60, lambda: not kube.pods(selector))
    kube.kubectl("delete", "lease", LEASE, "--ignore-not-found")
    try:
        yield
    finally:
        kube.kubectl("scale", "deployment/slackwater-operator", "--replicas=2")
        kube.kubectl("wait", "--for=condition=available", "deployment/slackwater-operator", "--timeout=120s")
