"""The Redis client for coordination. Rule: no transparent retries, and a deadline on everything (R-SLOT-05, 06).

URLs: `redis://`, `rediss://`, `unix://`, and `redis+sentinel://[user:password@]host[:port][,host…]/master[/db]`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from slackwater.errors import SettingsError
from slackwater.settings import Constants

SENTINEL_PORT = 26379


def redis_client(url: str, constants: Constants | None = None) -> Redis:
    """A client that answers or fails within `slot_timeout_seconds` per call. Raises SettingsError."""
    seconds = (constants or Constants()).slot_timeout_seconds
    options: dict[str, Any] = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    if url.startswith("redis+sentinel://"):
        return _by_sentinel(url, options)
    try:
        return Redis.from_url(url, **options)
    except ValueError:
        raise SettingsError("REDIS_URL", "is not a redis://, rediss://, unix:// or redis+sentinel:// URL") from None


def _by_sentinel(url: str, options: dict[str, Any]) -> Redis:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    path = [part for part in parts.path.split("/") if part]
    if not hosts or not path:
        raise SettingsError("REDIS_URL", "must name sentinels and the master: redis+sentinel://host:port,host/master")
    places = [(host, int(port or SENTINEL_PORT)) for host, _, port in (one.partition(":") for one in hosts.split(","))]
    if login:
        options |= {"username": unquote(user) or None, "password": unquote(password)}
    patience = {"socket_timeout": options["socket_timeout"]}
    sentinel = Sentinel(places, sentinel_kwargs=patience, **options)  # type: ignore[no-untyped-call]  # theirs
    master: Redis = sentinel.master_for(path[0], db=int(path[1]) if len(path) > 1 else 0)
    return master
