"""The API server. Rule: every request has a time-out, every answer that is no success becomes one of our errors.

The official client does authentication, TLS and connections; bodies stay plain JSON, since what is read here is
made into values by `reading`. Before each write the guard asks whether this process still leads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from slackwater_operator import errors

Json = dict[str, Any]
_READS = frozenset({"GET"})
_MERGE = "application/merge-patch+json"
_PAGE = 500


class Kube:
    def __init__(self, client: ApiClient, *, timeout_seconds: float, guard: Callable[[], None]) -> None:
        self._client = client
        self._timeout = timeout_seconds
        self._guard = guard
        self.calls = 0

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]  # theirs

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        content_type: str = "application/json",
    ) -> Json:
        if method not in _READS:
            self._guard()
        self.calls += 1
        headers = {"Accept": "application/json", "Content-Type": _MERGE if method == "PATCH" else content_type}
        try:
            async with asyncio.timeout(timeout_seconds or self._timeout):
                made = await self._client.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params=headers,
                    body=body,
                    auth_settings=["BearerToken"],
                )
                answer = await self._client.call_api(
                    *made, _request_timeout=timeout_seconds or self._timeout, _preload_content=False
                )
                text = await answer.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.Unavailable(f"{method} {path}: no answer ({type(error).__name__} {error})") from error
        if not 200 <= answer.status < 300:
            raise refusal(answer.status, text, answer.headers.get("Retry-After"), f"{method} {path}")
        return dict(json.loads(text))

    async def get(self, path: str) -> Json:
        return await self.request("GET", path)

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        return await self.request("POST", path, body=body, query={"dryRun": "All"} if dry_run else None)

    async def create_canonical(self, path: str, body: Json) -> Json:
        """Create with the spelling that the API server itself writes, by sending YAML, which it spells anew.

        A ControllerRevision's data may not change, and "change" is judged by bytes: JSON with other blanks or escapes
        than the server's own would make every later patch of its annotations fail.
        """
        return await self.request("POST", path, body=json.dumps(body), content_type="application/yaml")

    async def patch(self, path: str, body: Json) -> Json:
        return await self.request("PATCH", path, body=body)

    async def replace(self, path: str, body: Json, *, timeout_seconds: float | None = None) -> Json:
        return await self.request("PUT", path, body=body, timeout_seconds=timeout_seconds)

    async def delete(self, path: str, *, uid: str, grace_seconds: int | None = None) -> Json:
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", path, body=body)

    async def pages(self, path: str, *, labels: str = "") -> AsyncIterator[Json]:
        """A list, page by page; one that expired under way raises Gone, and the caller begins anew."""
        query = {"limit": str(_PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self.request("GET", path, query=query)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}


def refusal(status: int, text: bytes, retry_after: str | None, what: str) -> errors.ApiError:
    """The API server's status object → one of our errors."""
    try:
        document = json.loads(text)
        message, reason = str(document.get("message", "")), str(document.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = text[:200].decode(errors="replace"), ""
    said = f"{what}: {message or status}"
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    match status:
        case 404:
            return errors.NotFound(said, status=status)
        case 409:
            return (errors.AlreadyExists if reason == "AlreadyExists" else errors.Conflict)(said, status=status)
        case 410:
            return errors.Gone(said, status=status)
        case 400 | 413 | 422:
            return errors.Invalid(said, status=status)
        case 403 if "exceeded quota" in message:
            return errors.QuotaExceeded(said, status=status)
        case 403 if "being terminated" in message:
            return errors.NamespaceTerminating(said, status=status)
        case 401 | 403:
            return errors.Forbidden(said, status=status)
        case _:
            return errors.Unavailable(said, status=status, retry_after=wait)


async def connect(*, timeout_seconds: float, guard: Callable[[], None]) -> Kube:
    """By service account in a pod, otherwise by kubeconfig (KUBECONFIG)."""
    configuration = Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except kube_config.ConfigException:
        await kube_config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    client = ApiClient(configuration)
    client.user_agent = "slackwater-operator"
    return Kube(client, timeout_seconds=timeout_seconds, guard=guard)
