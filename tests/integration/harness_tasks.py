"""Tasks that the harness's own tests run."""

from __future__ import annotations

import asyncio
from typing import Any

from slackwater.sdk import Aftermath, Context, ProviderCall, RetryLater, Submission, SyncContext, task

Object = dict[str, Any]
RELEASE: dict[str, asyncio.Event] = {}
"""By name: what a test lets go on."""


@task("h.count", on_interrupt="requeue")
async def count(ctx: Context, payload: Object) -> Object:
    done = ctx.saved["done"] if ctx.saved else 0
    began = done
    while done < payload["steps"]:
        done += 1
        await ctx.checkpoint({"done": done})
        await asyncio.sleep(payload.get("pause", 0))
    return {"began": began, "done": done}


@task("h.wait")
async def wait(ctx: Context, payload: Object) -> str:
    await ctx.event("waiting")
    await RELEASE[payload["name"]].wait()
    return "released"


@task("h.flaky", retries=3)
async def flaky(ctx: Context, payload: Object) -> int:
    if ctx.run.attempts < payload["failures"]:
        raise RetryLater(3600, "not today")
    return ctx.run.attempts


@task("h.plain", on_interrupt="requeue")
def plain(ctx: SyncContext, payload: Object) -> Object:
    ctx.progress(0.5)
    return {"doubled": 2 * payload["number"]}


@task("h.held", on_interrupt="hold")
async def held(ctx: Context, payload: Object) -> None:
    await asyncio.sleep(60)


@task("h.deaf", on_interrupt="requeue")
async def deaf(ctx: Context, payload: Object) -> None:
    while not RELEASE[payload["name"]].is_set():
        try:
            await RELEASE[payload["name"]].wait()
        except asyncio.CancelledError:
            continue


CARED: list[Any] = []
"""What the hooks below were called with."""
OUTCOMES: list[Any] = []
"""What the provider answers when it is asked to stop; an exception is raised."""


async def stop(after: Aftermath, submission: Submission) -> Any:
    CARED.append(("stop", after.task_id, submission.key, submission.reference))
    answer = OUTCOMES.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


async def undo(after: Aftermath) -> None:
    CARED.append(("undo", after.task_id, after.state, len(after.submissions)))


async def _wait(ctx: Context, payload: Object) -> str:
    if payload.get("ask"):
        await ctx.submission("frame", provider="stub", request={}, call=_reference)
    await ctx.event("waiting")
    if payload.get("fail"):
        raise ValueError("as asked")
    await RELEASE[payload["name"]].wait()
    return "released"


task("h.cared", on_cancel=stop, compensate=undo)(_wait)
task("h.free", on_cancel=stop, charge_on_cancel="nothing")(_wait)
task("h.dear", charge_on_cancel="all")(_wait)
task("h.lost", on_interrupt="fail", on_lost="requeue")(_wait)


async def _reference(call: ProviderCall) -> str:
    return f"job-{call.key[:8]}"


@task("h.late", on_interrupt="requeue")
async def late(ctx: Context, payload: Object) -> Object:
    """The first run learns the provider's outcome only after it lost its lease."""
    asked = await ctx.submission("frame", provider="stub", request={}, call=_reference)
    if asked.outcome is None:
        try:
            await RELEASE[payload["name"]].wait()
        except asyncio.CancelledError:
            await ctx.resolve(asked, {"url": "late"})
    result: Object = asked.outcome or {"url": "fresh"}
    return result
