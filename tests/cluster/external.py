"""A cluster that somebody else runs, named by a context of a kubeconfig.

Rule: the same interface as the harness's cluster as far as it goes, and a clear word where it ends: nobody's nodes are
switched off here.
"""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.cluster.shell import ClusterError


class FaultsUnavailableError(ClusterError):
    """Faults need the harness's own cluster."""


@dataclass(frozen=True)
class ExternalCluster:
    """kubectl against `CONTEXT=name`; no faults, and Services only by port-forward."""

    context: str

    @property
    def kubeconfig(self) -> Path:
        return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 120) -> str:
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", f"--context={self.context}", *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise ClusterError(f"kubectl {' '.join(args)}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        return dict(json.loads(self.kubectl("get", *args, "-o", "json")))

    def joined(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @property
    def faults(self) -> NoReturn:
        self.faults_in("slackwater")

    def faults_in(self, namespace: str) -> NoReturn:
        raise FaultsUnavailableError(
            f"context {self.context} is not a cluster of the harness: no faults in {namespace}"
        )
