"""Reaching a Service from here. Rule: callers get (host, port) and need not know which way was taken.

Inside the harness's network a Service's own address works. Of any other cluster kubectl forwards a local port, and is
started again when the pod behind it went.
"""

from __future__ import annotations

import re
import subprocess
from typing import Protocol

from tests.kit.kube import Kube


class Reach(Protocol):
    def address(self, service: str) -> tuple[str, int]:
        """Host and port at which the Service's first port answers now."""

    def close(self) -> None: ...


class Inside:
    """For a process in the cluster's own network."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._known: dict[str, tuple[str, int]] = {}

    def address(self, service: str) -> tuple[str, int]:
        if service not in self._known:
            self._known[service] = self._kube.service_address(service)
        return self._known[service]

    def close(self) -> None:
        self._known.clear()


class Forwarded:
    """For everybody else: one `kubectl port-forward` per Service."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._running: dict[str, tuple[subprocess.Popen[str], int]] = {}

    def address(self, service: str) -> tuple[str, int]:
        known = self._running.get(service)
        if known and known[0].poll() is None:
            return "127.0.0.1", known[1]
        _, port = self._kube.service_address(service)
        process = subprocess.Popen(
            self._kube.access.kubectl(self._kube.namespace, "port-forward", f"service/{service}", f":{port}"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        if match is None:
            process.kill()
            raise ConnectionError(f"kubectl could not forward a port to service {service}")
        self._running[service] = process, int(match[1])
        return "127.0.0.1", int(match[1])

    def close(self) -> None:
        for process, _ in self._running.values():
            process.terminate()
            process.wait(10)
        self._running.clear()
