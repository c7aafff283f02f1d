"""The sample's tasks.

Each tells the provider when it starts and when it ends by itself; an interrupted one never ends.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from samples.render.provider import poll, submit, trace, trace_sync
from slackwater.sdk import Context, SyncContext, task

Object = dict[str, Any]


@task("render", on_interrupt="requeue", silence_seconds=600, retries=5)
async def render(ctx: Context, payload: Object) -> Object:
    """Pay for one frame once: ask, then poll until it is there. A run after an interruption finds its reference."""
    await trace("start", ctx.claim)
    request = {"seconds": payload["seconds"], "frame": payload.get("frame")}
    frame = await ctx.submission("frame", provider="render", request=request, call=submit)
    assert frame.reference is not None
    while True:
        answer = await poll(frame.reference, ctx.claim)
        ctx.heartbeat(answer["progress"])
        await ctx.progress(answer["progress"])
        if answer["state"] == "done":
            break
        await asyncio.sleep(payload.get("poll_seconds", 0.5))
    result: Object = answer["result"]
    await ctx.resolve(frame, result)
    await trace("end", ctx.claim)
    return result


@task("nap", on_interrupt="fail")
async def nap(ctx: Context, payload: Object) -> Object:
    """Work without a provider: an interruption fails it."""
    await trace("start", ctx.claim)
    await asyncio.sleep(payload["seconds"])
    await trace("end", ctx.claim)
    return {"slept": payload["seconds"]}


@task("burn", on_interrupt="requeue")
def burn(ctx: SyncContext, payload: Object) -> Object:
    """A plain function: runs in a process of its own, and may burn its processor."""
    trace_sync("start", ctx.claim)
    until, rounds = time.monotonic() + payload["seconds"], 0
    while time.monotonic() < until:
        rounds += 1
    ctx.progress(1.0)
    trace_sync("end", ctx.claim)
    return {"rounds": rounds}


@task("fail", on_interrupt="requeue")
async def fail(ctx: Context, payload: Object) -> None:
    """Fails by its own doing after a while."""
    await trace("start", ctx.claim)
    await asyncio.sleep(payload["seconds"])
    await trace("end", ctx.claim)
    raise RuntimeError(payload.get("message", "the frame is beyond repair"))


@task("stubborn", on_interrupt="requeue")
async def stubborn(ctx: Context, payload: Object) -> Object:
    """Ignores cancellation: its worker gives itself up (exit code 4)."""
    await trace("start", ctx.claim)
    until = time.monotonic() + payload["seconds"]
    while (left := until - time.monotonic()) > 0:
        try:
            await asyncio.sleep(min(left, 1.0))
        except asyncio.CancelledError:
            continue
    await trace("end", ctx.claim)
    return {"ignored": True}
