"""One request to a receiver. Rule: 2xx within the time-out is a delivery, everything else is a failure with its reason.

The reason says the status or the kind of fault, never what the receiver wrote: that is neither ours nor bounded.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass
from typing import Protocol

import httpx

from slackwater.delivery import signing
from slackwater.delivery.address import NotAllowed, parse, resolve
from slackwater.errors import InvalidInput
from slackwater.store.outbox import Letter


@dataclass(frozen=True)
class Sent:
    """`error`: None if the receiver took it."""

    error: str | None = None


class Send(Protocol):
    async def __call__(self, letter: Letter) -> Sent: ...


def body_of(letter: Letter) -> bytes:
    """The same bytes at every repeat."""
    document = {
        "delivery": letter.id,
        "task": str(letter.task_id),
        "type": letter.type,
        "queue": letter.queue,
        "user_id": letter.user_id,
        "seq": letter.seq,
        "kind": letter.kind,
        "at": letter.created_at.isoformat(),
        "data": letter.data,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


class HttpSender:
    """Over one client; close it."""

    def __init__(self, *, timeout_seconds: float, verify: ssl.SSLContext | bool = True) -> None:
        self._timeout = timeout_seconds
        # No proxies, cookies or .netrc of the environment: a delivery goes where the webhook says and nowhere else.
        self._client = httpx.AsyncClient(
            timeout=timeout_seconds, trust_env=False, follow_redirects=False, verify=verify, limits=_LIMITS
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def __call__(self, letter: Letter) -> Sent:
        body = body_of(letter)
        named = {"delivery": str(letter.id), "kind": letter.kind}
        headers = signing.headers(letter.secrets, int(time.time()), body, **named)
        try:
            async with asyncio.timeout(self._timeout):
                target = parse(letter.url)
                address = await resolve(target, private=letter.private)
                request = self._client.build_request(
                    "POST",
                    target.url_at(address),
                    content=body,
                    headers={**headers, "Host": target.host_header},
                    extensions={"sni_hostname": target.host},
                )
                response = await self._client.send(request, stream=True)
                await response.aclose()  # what it says beyond its status is not read
        except (NotAllowed, InvalidInput) as error:
            return Sent(str(error))
        except (TimeoutError, httpx.TimeoutException):
            return Sent("no answer in time")
        except (httpx.HTTPError, OSError) as error:
            return Sent(f"no connection: {type(error).__name__}")
        return Sent(None if response.is_success else f"status {response.status_code}")


_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=0)
"""Nothing is kept open: the next delivery asks for the address again."""
