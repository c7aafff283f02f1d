"""What the handlers work with: one value per application, put together by `app` and read from the request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from slackwater.activity import Activity
from slackwater.admission import Limits
from slackwater.errors import PolicyUnreadable, SlotsUnavailable
from slackwater.gateway.auth import Caller, Tokens, bearer
from slackwater.gateway.average import CachedAverage
from slackwater.gateway.hub import Hub
from slackwater.gateway.metrics import Metrics
from slackwater.gateway.probes import RedisProbe
from slackwater.gateway.responses import Forbidden, Unauthorized
from slackwater.gateway.settings import GatewaySettings
from slackwater.policy import PolicyCache
from slackwater.store import Store


@dataclass
class Gateway:
    settings: GatewaySettings
    store: Store
    redis: RedisProbe
    tokens: Tokens
    hub: Hub
    average: CachedAverage
    policy: PolicyCache
    activity: Activity
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    """SIGTERM came: not ready any more, still serving."""

    async def concurrency(self) -> int:
        """For estimates only: the usual figure when the policy can't be read."""
        try:
            return (await self.policy.get()).worker_concurrency
        except PolicyUnreadable:
            return Limits().worker_concurrency

    async def require_redis(self) -> None:
        """Raises SlotsUnavailable: what could not be claimed is not accepted."""
        if not await self.redis.there():
            raise SlotsUnavailable("Redis does not answer")


def gateway_of(request: Request) -> Gateway:
    found: Gateway = request.app.state.gateway
    return found


def caller_of(request: Request) -> Caller:
    token = bearer(request.headers.get("authorization"))
    caller = None if token is None else gateway_of(request).tokens.find(token)
    if caller is None:
        raise Unauthorized
    request.scope["slackwater.user"] = caller.user  # for the log line, hashed there
    return caller


def admin_of(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
    if not caller.admin:
        raise Forbidden
    return caller


TheGateway = Annotated[Gateway, Depends(gateway_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
TheAdmin = Annotated[Caller, Depends(admin_of)]
