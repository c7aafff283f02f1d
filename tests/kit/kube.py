"""A small client for one namespace of one cluster. Rule: reads return plain dicts as kubectl would print them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kubernetes import client, config, watch

GROUP, VERSION, PLURAL = "slackwater.dev", "v1alpha1", "workerpools"
KUBECTL = Path(sys.executable).with_name("kubectl")
Object = dict[str, Any]


@dataclass(frozen=True)
class Access:
    """How to reach a cluster: a kubeconfig file, and a context of it or its current one."""

    kubeconfig: Path
    context: str | None = None

    def kubectl(self, namespace: str, *args: str) -> list[str]:
        """The command line of kubectl for this cluster."""
        context = ["--context", self.context] if self.context else []
        return [str(KUBECTL), "--kubeconfig", str(self.kubeconfig), *context, "-n", namespace, *args]


class Kube:
    def __init__(self, access: Access, namespace: str = "slackwater") -> None:
        self.access, self.namespace = access, namespace
        api = config.new_client_from_config(  # type: ignore[no-untyped-call]  # the client ships no types here
            config_file=str(access.kubeconfig), context=access.context
        )
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self._api = api

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """kubectl's standard output; raises with its standard error when it fails and `check` is set."""
        done = subprocess.run(
            self.access.kubectl(self.namespace, *args),
            input=stdin, text=True, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, manifest: Object) -> None:
        """Server-side apply, the documented way."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest))

    def pods(self, selector: str = "") -> list[Object]:
        found = self.core.list_namespaced_pod(self.namespace, label_selector=selector, _request_timeout=10)
        return [self._plain(p) for p in found.items]

    def follow_pods(self, selector: str, seconds: int) -> Iterator[Object]:
        """Every version of these pods that the API server tells within `seconds`, the present ones first."""
        stream = watch.Watch().stream(  # type: ignore[no-untyped-call]  # as above
            self.core.list_namespaced_pod, self.namespace, label_selector=selector, timeout_seconds=seconds
        )
        for event in stream:
            yield cast(Object, event["raw_object"])

    def pod(self, name: str) -> Object | None:
        try:
            return self._plain(self.core.read_namespaced_pod(name, self.namespace, _request_timeout=10))
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def pool(self, name: str) -> Object:
        got = self.custom.get_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, name, _request_timeout=10
        )
        return cast(Object, got)

    def patch_pool(self, name: str, spec: Object) -> None:
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, name, {"spec": spec}, _request_timeout=10
        )

    def set_image(self, pool: str, image: str) -> None:
        """The ordinary edit of a release: one new image for the container `worker`."""
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
        self.kubectl("patch", "workerpool", pool, "--type=json", "-p", json.dumps(patch))

    def events(self, name: str) -> list[Object]:
        found = self.core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}")
        return [self._plain(e) for e in found.items]

    def service_address(self, name: str) -> tuple[str, int]:
        """Cluster address of a Service: reachable from inside the harness's network."""
        spec = self._plain(self.core.read_namespaced_service(name, self.namespace, _request_timeout=10))["spec"]
        return spec["clusterIP"], spec["ports"][0]["port"]

    def _plain(self, obj: Any) -> Object:
        plain: Object = self._api.sanitize_for_serialization(obj)
        return plain


def worker_status(pod: Object) -> Object:
    """containerStatus of `worker`, or an empty dict before the kubelet wrote one."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((s for s in statuses if s["name"] == "worker"), {})


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def condition(obj: Object, kind: str) -> Object:
    """The condition of that type, or an empty dict."""
    found = obj.get("status", {}).get("conditions", [])
    return next((c for c in found if c["type"] == kind), {})
