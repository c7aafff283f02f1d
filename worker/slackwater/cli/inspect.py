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
    app.command("prune")(prune)


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


def prune(  # noqa: PLR0917 - the options of a command
    context: typer.Context,
    tasks: Annotated[float | None, typer.Option("--tasks-days", min=0, help="Ended tasks.")] = None,
    results: Annotated[float | None, typer.Option("--results-days", min=0, help="Their results.")] = None,
    events: Annotated[float | None, typer.Option("--events-hours", min=0, help="Their events.")] = None,
    outbox: Annotated[float | None, typer.Option("--outbox-days", min=0, help="What was delivered.")] = None,
    dead: Annotated[float | None, typer.Option("--dead-days", min=0, help="What was given up.")] = None,
    audit: Annotated[float | None, typer.Option("--audit-days", min=0, help="Audit records.")] = None,
    keys: Annotated[float | None, typer.Option("--keys-days", min=0, help="Idempotency keys.")] = None,
    workers: Annotated[float | None, typer.Option("--workers-days", min=0, help="Workers and cordons.")] = None,
) -> None:
    """Remove what is older than its kind's age; an age not given is that of SLACKWATER_KEEP_…. Prints how many."""
    from slackwater.settings import RetentionSettings
    from slackwater.store.retention import prune as act

    given = {
        "tasks_days": tasks,
        "results_days": results,
        "events_hours": events,
        "outbox_days": outbox,
        "dead_days": dead,
        "audit_days": audit,
        "keys_days": keys,
        "workers_days": workers,
    }
    keep = load(RetentionSettings).model_copy(update={k: v for k, v in given.items() if v is not None})

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, keep)

    output_of(context).one(run(work()))


def _literal(text: str) -> str:
    """Without the meaning that SCAN's patterns give to some characters."""
    return "".join(f"\\{c}" if c in "*?[]^\\-" else c for c in text)
