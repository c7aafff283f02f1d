"""The provider's client, as a task author would write it.

Every call carries the claim, so that the provider's log can judge.
"""

from __future__ import annotations

import os
from typing import Any

import httpx

from slackwater.sdk import Claim, ProviderCall, RetryLater

Object = dict[str, Any]


def _url(path: str) -> str:
    return os.environ.get("RENDER_URL", "http://127.0.0.1:8090") + path


def _claim(claim: Claim) -> Object:
    return {"task": str(claim.task_id), "epoch": claim.epoch, "worker": claim.worker_id}


def _checked(answer: httpx.Response) -> Object:
    """A refusal that created nothing (429, 503) asks for a later repeat under the same key."""
    if answer.status_code in (429, 503):
        raise RetryLater(float(answer.headers.get("Retry-After", 1)), f"the provider answered {answer.status_code}")
    answer.raise_for_status()
    body: Object = answer.json()
    return body


async def _ask(method: str, path: str, **more: Any) -> Object:
    """A lost connection is asked again: the key makes that harmless."""
    transport = httpx.AsyncHTTPTransport(retries=3)
    async with httpx.AsyncClient(transport=transport, timeout=30, trust_env=False) as client:
        return _checked(await client.request(method, _url(path), **more))


async def submit(call: ProviderCall) -> str:
    answer = await _ask("POST", "/renders", json={**call.request, "key": call.key, **_claim(call.claim)})
    return str(answer["reference"])


async def poll(reference: str, claim: Claim) -> Object:
    return await _ask("GET", f"/renders/{reference}", params=_claim(claim))


async def trace(what: str, claim: Claim) -> None:
    await _ask("POST", "/trace", json={"what": what, **_claim(claim)})


def trace_sync(what: str, claim: Claim) -> None:
    transport = httpx.HTTPTransport(retries=3)
    with httpx.Client(transport=transport, timeout=30, trust_env=False) as client:
        _checked(client.post(_url("/trace"), json={"what": what, **_claim(claim)}))
