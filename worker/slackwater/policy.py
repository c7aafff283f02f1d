"""The policy: limits that an admin may change at any time. Rule: unreadable is an error, never a default (R-CACHE-08).

`Policy.read` is pure. `PolicyCache` keeps it for 2 s with one load at a time for all waiting readers (R-CACHE-07);
strict checks (money, admission) call `read_policy` each time (R-CACHE-10).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.errors import InvalidInput, PolicyUnreadable, StoreUnavailable

COOLDOWN_SECONDS = 1.0


@dataclass(frozen=True)
class Policy:
    """Limits by name. `pools`: overrides of `worker_concurrency` by pool uid; a channel or user not named has none.

    `channels` and `users` bound what runs at once, `channel_pending` what waits.
    """

    user_pending_limit: int = 3
    system_pending_limit: int = 20
    worker_concurrency: int = 4
    pools: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    users: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    channel_pending: Mapping[str, int] = field(default_factory=dict)

    def pool_limit(self, pool_uid: str) -> int:
        """Tasks that may run in the pool at once."""
        return self.pools.get(pool_uid, self.worker_concurrency)

    def channel_limit(self, channel: str) -> int | None:
        return self.channels.get(channel)

    def user_limit(self, user_id: str) -> int | None:
        """Tasks that may run at once for the user."""
        return self.users.get(user_id)

    def weight(self, user_id: str) -> float:
        """The user's share in the fair order, 1 by default."""
        return self.weights.get(user_id, 1.0)

    @staticmethod
    def read(document: Any) -> Policy:
        """From the stored document. Raises InvalidInput naming the field; unknown keys are left to newer releases."""
        if not isinstance(document, Mapping):
            raise InvalidInput("policy", None, "must be an object")
        return Policy(
            user_pending_limit=_count(document, "user_pending_limit"),
            system_pending_limit=_count(document, "system_pending_limit"),
            worker_concurrency=_count(document, "worker_concurrency"),
            pools=_counts(document, "pools"),
            channels=_counts(document, "channels"),
            users=_counts(document, "users"),
            weights=_weights(document),
            channel_pending=_counts(document, "channel_pending"),
        )

    def document(self) -> dict[str, Any]:
        """What is stored."""
        return {
            "user_pending_limit": self.user_pending_limit,
            "system_pending_limit": self.system_pending_limit,
            "worker_concurrency": self.worker_concurrency,
            "pools": dict(self.pools),
            "channels": dict(self.channels),
            "users": dict(self.users),
            "weights": dict(self.weights),
            "channel_pending": dict(self.channel_pending),
        }


class PolicyCache:
    """One policy for `ttl_seconds`. Failures are not served from the cache, and not asked for again within 1 s."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Policy]],
        *,
        ttl_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._ttl = ttl_seconds
        self._clock = clock
        self._kept: tuple[float, Policy] | None = None
        self._failed: tuple[float, PolicyUnreadable] | None = None
        self._loading: asyncio.Task[Policy] | None = None
        self._version = 0

    async def get(self) -> Policy:
        """The policy, at most `ttl_seconds` old. Raises PolicyUnreadable."""
        now = self._clock()
        if self._kept is not None and now < self._kept[0] + self._ttl:
            return self._kept[1]
        if self._failed is not None and now < self._failed[0] + COOLDOWN_SECONDS:
            raise self._failed[1].with_traceback(None)
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._fill(self._version))
        # A reader that is cancelled doesn't take the load from the others.
        return await asyncio.shield(self._loading)

    def drop(self) -> None:
        """Forget what is kept: after this process saved a policy (R-CACHE-09). A load under way is not kept either."""
        self._kept = self._failed = self._loading = None
        self._version += 1

    async def _fill(self, version: int) -> Policy:
        started = self._clock()
        try:
            policy = await self._load()
        except PolicyUnreadable as error:
            if version == self._version:
                self._failed = (self._clock(), error)
            raise
        if version == self._version:
            # As old as the moment of asking.
            self._kept, self._failed = (started, policy), None
        return policy


def unreadable(error: Exception) -> PolicyUnreadable:
    """Whatever kept the policy from being read."""
    if isinstance(error, InvalidInput):
        return PolicyUnreadable(f"the stored policy is invalid: {error}")
    if isinstance(error, StoreUnavailable):
        return PolicyUnreadable(str(error))
    return PolicyUnreadable(f"{type(error).__name__}: {error}")


def _count(document: Mapping[str, Any], name: str) -> int:
    if name not in document:
        raise InvalidInput(name, None, "is missing")
    return _whole(document[name], name)


def _counts(document: Mapping[str, Any], name: str) -> dict[str, int]:
    return {key: _whole(value, f"{name}.{key}") for key, value in _object(document, name).items()}


def _weights(document: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for user, value in _object(document, "weights").items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1000:
            raise InvalidInput(f"weights.{user}", 1000, "must be a number above 0, at most 1000")
        found[user] = float(value)
    return found


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidInput(name, None, "must be an object")
    return value


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise InvalidInput(name, 1_000_000, "must be a whole number from 0 to 1000000")
    return value
