"""The caller's API server. Rule: their kubeconfig, their context, their rights; a Pod's service account if none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from slackwater_operator import errors, paths, reading
from slackwater_operator.cli.words import Json
from slackwater_operator.kube import Kube
from slackwater_operator.names import KIND, LABEL_POOL
from slackwater_operator.seen import Revision

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_SECONDS = 30.0
_MANAGER = {"fieldManager": "kubectl-slackwater"}


class BadConfig(Exception):
    """No kubeconfig, or none with this context."""


@dataclass(frozen=True)
class Door:
    kube: Kube
    namespace: str

    async def pool(self, name: str) -> Json:
        try:
            return await self.kube.get(paths.pools(self.namespace, name))
        except errors.NotFound as error:
            if f'"{name}"' not in str(error):
                raise errors.NotFound("this cluster has no WorkerPools: the CRD is not installed", status=404) from None
            raise errors.NotFound(f"no WorkerPool {name} in namespace {self.namespace}", status=404) from None

    async def pods(self, pool: str) -> list[Json]:
        return await self._all(paths.pods(self.namespace), pool)

    async def revisions(self, pool: Json) -> list[Revision]:
        found = await self._all(paths.revisions(self.namespace), pool["metadata"]["name"])
        uid = pool["metadata"]["uid"]
        return [reading.revision(body) for body in found if reading.owner_uid(body) == uid]

    async def pod(self, name: str) -> Json:
        try:
            return await self.kube.get(paths.pods(self.namespace, name))
        except errors.NotFound:
            raise errors.NotFound(f"no pod {name} in namespace {self.namespace}", status=404) from None

    async def pool_of(self, pod: Json) -> Json | None:
        """The pool that owns it; None if that is gone, or if its name is another's by now."""
        owner = next(o for o in pod["metadata"]["ownerReferences"] if o.get("controller") and o.get("kind") == KIND)
        try:
            found = await self.kube.get(paths.pools(self.namespace, owner["name"]))
        except errors.NotFound:
            return None
        return found if found["metadata"]["uid"] == owner["uid"] else None

    async def patch_pool(self, name: str, body: Json) -> Json:
        return await self._patch(paths.pools(self.namespace, name), body)

    async def patch_pod(self, name: str, body: Json) -> Json:
        return await self._patch(paths.pods(self.namespace, name), body)

    async def _patch(self, path: str, body: Json) -> Json:
        return await self.kube.request("PATCH", path, body=body, query=_MANAGER)

    async def _all(self, path: str, pool: str) -> list[Json]:
        return [item async for page in self.kube.pages(path, labels=f"{LABEL_POOL}={pool}") for item in page["items"]]


@asynccontextmanager
async def opened(context: str | None, namespace: str | None) -> AsyncIterator[Door]:
    configuration = Configuration()
    try:
        default = await _kubeconfig(configuration, context)
    except (kube_config.ConfigException, FileNotFoundError) as error:
        if context is not None:
            raise BadConfig(str(error)) from error
        try:
            default = _in_a_pod(configuration)
        except kube_config.ConfigException:
            raise BadConfig(f"{error} (KUBECONFIG names the file)") from error
    except Exception as error:  # theirs: whatever a strange file makes of its reader
        raise BadConfig(f"the kubeconfig can't be read: {type(error).__name__}: {error}") from error
    client = ApiClient(configuration)
    client.user_agent = "kubectl-slackwater"
    kube = Kube(client, timeout_seconds=_TIMEOUT_SECONDS, guard=lambda: None)
    try:
        yield Door(kube, namespace or default)
    finally:
        await kube.close()


async def _kubeconfig(configuration: Configuration, context: str | None) -> str:
    """Loads it and tells the context's namespace."""
    loader: Any = await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
        context=context, client_configuration=configuration, persist_config=False
    )
    return str(loader.current_context["context"].get("namespace") or "default")


def _in_a_pod(configuration: Configuration) -> str:
    kube_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
