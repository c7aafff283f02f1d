"""Commands that look at the slots, and the sweep by hand. Rule: nothing here removes a slot; healing is the sweep's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.common import RedisSettings, opened_redis, opened_store, output_of, run
from slackwater.errors import SlotsUnavailable
from slackwater.settings import load

if TYPE_CHECKING:
    from redis.asyncio import Redis

_HOLDERS = ("kind", "name", "token", "renewed_seconds_ago", "expires_in_seconds")
_SCOPES = ("kind", "name", "live", "expired")


@dataclass(frozen=True)
class HeldSlot:
    kind: str
    name: str
    token: str
    renewed_seconds_ago: float
    expires_in_seconds: float


def register(app: typer.Typer) -> None:
    app.command("slots")(slots)
    app.command("sweep")(sweep)


def slots(
    context: typer.Context,
    holders: Annotated[bool, typer.Option("--holders", help="Each slot with its token and age.")] = False,
) -> None:
    """Concurrency slots by scope. Looks only."""

    async def work() -> list[HeldSlot]:
        from redis.exceptions import RedisError

        async with opened_redis() as client:
            try:
                return [slot async for slot in held(client, load(RedisSettings).slot_prefix)]
            except (RedisError, OSError, TimeoutError) as error:
                raise SlotsUnavailable(f"no answer from Redis: {type(error).__name__}") from None

    found = sorted(run(work()), key=lambda slot: (slot.kind, slot.name, slot.expires_in_seconds))
    if holders:
        output_of(context).rows(_HOLDERS, found)
        return
    scopes: dict[tuple[str, str], list[bool]] = {}
    for slot in found:
        scopes.setdefault((slot.kind, slot.name), []).append(slot.expires_in_seconds > 0)
    lines = [
        {"kind": kind, "name": name, "live": sum(live), "expired": len(live) - sum(live)}
        for (kind, name), live in scopes.items()
    ]
    output_of(context).rows(_SCOPES, lines)


async def held(client: Redis, prefix: str) -> AsyncIterator[HeldSlot]:
    """Every member of every scope, with ages by the server's clock."""
    from slackwater.settings import Constants
    from slackwater.slots import Kind

    lease = load(Constants).slot_seconds
    seconds, micros = await client.time()
    now = seconds + micros / 1e6
    async for raw in client.scan_iter(match=f"{_literal(prefix)}:*", count=500, _type="zset"):
        key = raw.decode() if isinstance(raw, bytes) else str(raw)
        kind, _, name = key.removeprefix(f"{prefix}:").partition(":")
        if kind not in set(Kind):
            continue
        members: Any = await client.zrange(raw, 0, -1, withscores=True)
        for member, score in members:
            left, token = score / 1000 - now, member.decode()
            yield HeldSlot(kind, name, token, round(lease - left, 1), round(left, 1))


def sweep(context: typer.Context) -> None:
    """Run the sweeps that are due, as any worker, gateway or operator does. Prints what they did."""
    from slackwater.slots import Slots
    from slackwater.sweep import run_due

    async def work() -> Any:
        async with opened_store() as store, opened_redis() as client:
            prefix = load(RedisSettings).slot_prefix
            return await run_due(store, Slots(client, prefix=prefix, constants=store.constants))

    report = run(work())
    output_of(context).one(report)
    if report.errors:
        raise typer.Exit(1)


def _literal(text: str) -> str:
    """Without the meaning that SCAN's patterns give to some characters."""
    return "".join(f"\\{c}" if c in "*?[]^\\-" else c for c in text)
