"""Concurrency slots in Redis (rules 5 and 6). Rule: never over a limit, never a local way round, never a guess.

One script (`slots.lua`) takes all scopes of a task or none. A slot is a member named by its claim's token; giving back
removes exactly that one, as often as one likes. Every answer is an answer of a Redis that still holds the slots of the
present generation; otherwise it is `Lost`, which is no refusal: executions go on, claiming pauses (`store.generation`
restores). No answer at all is SlotsUnavailable. The client retries nothing: a time-out leaves the outcome unknown, so
whoever gave up on an acquisition gives its token back and takes another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import Any, Final
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from slackwater.errors import SlotsUnavailable
from slackwater.policy import Policy
from slackwater.settings import Constants

DEFAULT_PREFIX: Final = "slackwater:slots"
_BODY: Final = resources.files("slackwater").joinpath("slots.lua").read_text()


class Kind(StrEnum):
    """What a limit is about."""

    POOL = "pool"
    CHANNEL = "channel"
    USER = "user"


@dataclass(frozen=True)
class Scope:
    """One set of slots: at most `limit` members at a time, None for no limit (counted all the same)."""

    kind: Kind
    name: str
    limit: int | None = None


@dataclass(frozen=True)
class Holder:
    """Whoever the database says holds slots: the token of a running claim, or of one fenced before its lease's end."""

    token: UUID
    pool_uid: str
    channel: str
    user_id: str


@dataclass(frozen=True)
class Taken:
    """All scopes are taken, for `fresh_slot_seconds`: the first renewal brings them to `slot_seconds`."""


@dataclass(frozen=True)
class Full:
    """That scope is full; nothing was taken."""

    scope: Scope


@dataclass(frozen=True)
class Exists:
    """That token holds a slot already; nothing was taken. Use a new token."""

    scope: Scope


@dataclass(frozen=True)
class Renewed:
    """All scopes hold for another `slot_seconds`."""


@dataclass(frozen=True)
class Denied:
    """The token isn't there, or had expired: a Redis that has its data says that this execution holds no slot."""

    scope: Scope


@dataclass(frozen=True)
class Released:
    """Gone from that many scopes; 0 when it was gone before."""

    scopes: int


@dataclass(frozen=True)
class Lost:
    """Redis holds no slots of this generation: missing | generation | restarted | old | clock."""

    reason: str = field(default="", compare=False)


@dataclass(frozen=True)
class Touched:
    """The marker is fresh. `missing`: members that the database knows and Redis had not (not inserted)."""

    missing: int


LOST: Final = Lost()
"""Equal to any Lost."""


def scopes(*, pool_uid: str, channel: str, user_id: str, policy: Policy | None = None) -> tuple[Scope, ...]:
    """The scopes of a task, always all of them, so that a limit set later counts what already runs.

    Limits only matter to `acquire` and come from `policy`; renewing and giving back need none.
    """
    found = [
        Scope(Kind.POOL, pool_uid, policy.pool_limit(pool_uid) if policy else None),
        Scope(Kind.USER, user_id, policy.user_limit(user_id) if policy else None),
    ]
    if channel:
        found.append(Scope(Kind.CHANNEL, channel, policy.channel_limit(channel) if policy else None))
    return tuple(found)


class Slots:
    """The script bound to a client and a prefix. All methods raise SlotsUnavailable when there is no answer in 2 s."""

    def __init__(self, redis: Redis, *, prefix: str = DEFAULT_PREFIX, constants: Constants | None = None) -> None:
        self._redis = redis
        self._prefix = prefix
        self._constants = constants or Constants()
        # Renewing and giving back must work at maxmemory; taking must not.
        self._plain = _Script("#!lua\n" + _BODY)
        self._even_full = _Script("#!lua flags=allow-oom\n" + _BODY)

    async def acquire(self, token: UUID, wanted: Sequence[Scope], generation: int) -> Taken | Full | Exists | Lost:
        """Take a slot in every scope, or none. On SlotsUnavailable it may be taken: release the token."""
        limits = [-1 if scope.limit is None else max(scope.limit, 0) for scope in wanted]
        match await self._run("acquire", generation, wanted, str(token), *limits):
            case ["OK", *_]:
                return Taken()
            case ["FULL", int(i)]:
                return Full(wanted[i])
            case ["EXISTS", int(i)]:
                return Exists(wanted[i])
            case reply:
                return _lost(reply)

    async def renew(self, token: UUID, held: Sequence[Scope], generation: int) -> Renewed | Denied | Lost:
        """Extend every scope, or none. An expired or missing member is denied and never inserted again."""
        match await self._run("renew", generation, held, str(token)):
            case ["OK", *_]:
                return Renewed()
            case ["DENIED", int(i)]:
                return Denied(held[i])
            case reply:
                return _lost(reply)

    async def release(self, token: UUID, held: Sequence[Scope]) -> Released:
        """Remove that token and no other. Only after the database said that its claim ended, or never was.

        Compares no generation: removing one's own ended member is right whatever Redis lost meanwhile.
        """
        match await self._run("release", 0, held, str(token)):
            case ["OK", int(removed)]:
                return Released(removed)
            case reply:
                raise SlotsUnavailable(f"an answer that makes no sense: {reply!r}")

    async def count(self, *asked: Scope) -> list[int]:
        """Live members per scope, whatever the generation."""
        reply = await self._run("count", 0, asked)
        return [int(count) for count in reply[1:]]

    async def look(self, generation: int) -> int | Lost:
        """The server's time in ms if it holds the slots of that generation."""
        match await self._run("look", generation, ()):
            case ["OK", int(now)]:
                return now
            case reply:
                return _lost(reply)

    async def touch(self, generation: int, holders: Iterable[Holder], *, read_at: int) -> Touched | Lost:
        """Refresh the marker and extend, never insert, the holders' members.

        `read_at`: `look`'s answer from before the holders were read; the marker gets no fresher than that.
        """
        wanted, pairs = self._pairs(holders)
        match await self._run("touch", generation, wanted, read_at, *pairs):
            case ["OK", int(missing)]:
                return Touched(missing)
            case reply:
                return _lost(reply)

    async def rebuild(self, generation: int, holders: Iterable[Holder]) -> bool:
        """Add the holders' members and set the marker of `generation`. False: one at least as new was there."""
        wanted, pairs = self._pairs(holders)
        match await self._run("rebuild", generation, wanted, 0, *pairs):
            case ["OK", *_]:
                return True
            case _:
                return False

    def key(self, scope: Scope) -> str:
        """The name of the scope's set; stays as it is across releases (R-SLOT-17)."""
        return f"{self._prefix}:{scope.kind.value}:{scope.name}"

    @property
    def redis(self) -> Redis:
        """The client, for the other things that share the server."""
        return self._redis

    @property
    def marker(self) -> str:
        return f"{self._prefix}:marker"

    def _pairs(self, holders: Iterable[Holder]) -> tuple[list[Scope], list[int | str]]:
        """The scopes that occur, and (index of its key, token) per holder and scope."""
        index: dict[Scope, int] = {}
        pairs: list[int | str] = []
        for holder in holders:
            for scope in scopes(pool_uid=holder.pool_uid, channel=holder.channel, user_id=holder.user_id):
                pairs += [index.setdefault(scope, len(index) + 2), str(holder.token)]
        return list(index), pairs

    async def _run(self, op: str, generation: int, wanted: Sequence[Scope], *arguments: int | str) -> list[Any]:
        c = self._constants
        script = self._plain if op == "acquire" else self._even_full
        keys = [self.marker, *(self.key(scope) for scope in wanted)]
        head: list[int | str] = [
            op,
            generation,
            _ms(c.marker_age_seconds),
            _ms(c.clock_skew_seconds),
            _ms(c.fresh_slot_seconds if op == "acquire" else c.slot_seconds),
        ]
        try:
            async with asyncio.timeout(c.slot_timeout_seconds):
                reply = await script.run(self._redis, keys, [*head, *arguments])
        except (RedisError, OSError, TimeoutError) as error:
            raise SlotsUnavailable(f"no answer from Redis: {type(error).__name__}: {error}") from error
        return [part.decode() if isinstance(part, bytes) else part for part in reply]


class _Script:
    """A script by its digest; a server that doesn't know it (restarted, flushed) gets it with the same call."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, redis: Redis, keys: list[str], arguments: list[int | str]) -> list[Any]:
        try:
            reply: list[Any] = await redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:  # it did not run, so this is no repeat
            reply = await redis.eval(self._source, len(keys), *keys, *arguments)
        return reply


def _lost(reply: list[Any]) -> Lost:
    if reply[0] != "LOST":
        raise SlotsUnavailable(f"an answer that makes no sense: {reply!r}")
    return Lost(str(reply[1]))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
