"""Tasks for the tests of worker processes: each shows one thing to the provider's log."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import httpx

from samples.render.provider import submit, trace, trace_sync
from slackwater.sdk import Aftermath, Cancelled, Context, Submission, SyncContext, task

Object = dict[str, Any]


@task("steps", on_interrupt="requeue")
async def steps(ctx: Context, payload: Object) -> Object:
    """Counts up; when it is told to stop it leaves a checkpoint, and the next run goes on from there."""
    await trace("start", ctx.claim)
    done = ctx.saved["done"] if ctx.saved else 0
    try:
        while done < payload["steps"]:
            await asyncio.sleep(0.05)
            done += 1
    except asyncio.CancelledError:
        await ctx.checkpoint({"done": done})
        raise
    return {"began_at": ctx.saved["done"] if ctx.saved else 0, "done": done}


@task("family", on_interrupt="requeue")
def family(ctx: SyncContext, payload: Object) -> None:
    """A plain function that burns its processor, with children of its own."""
    children = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) for _ in range(payload["children"])
    ]
    ctx.event("pids", {"pids": [os.getpid(), *(child.pid for child in children)]})
    trace_sync("start", ctx.claim)
    until = time.monotonic() + payload["seconds"]
    while time.monotonic() < until:
        pass


@task("effects")
def effects(ctx: SyncContext, payload: Object) -> Object:
    """Every effect of a plain function goes through the worker."""

    def call(asked: Any) -> str:
        return f"reference of {asked.key}"

    ctx.progress(0.5)
    ctx.event("note", {"text": payload["text"]})
    ctx.heartbeat("evidence")
    frame = ctx.submission("frame", provider="none", request={"n": 1}, call=call)
    again = ctx.submission("frame", provider="none", request={"n": 2}, call=call)
    ctx.resolve(frame, {"ok": True})
    ctx.checkpoint({"at": "end"})
    return {"reference": frame.reference, "same": again.reference == frame.reference, "request": again.request}


task("effects-in-thread", threaded=True)(effects)


@task("asked-to-stop", on_interrupt="requeue")
def asked_to_stop(ctx: SyncContext, payload: Object) -> Object:
    """A plain function that ends itself when it is told to, at its next call."""
    trace_sync("start", ctx.claim)
    try:
        while True:
            ctx.progress(0.1)
            time.sleep(0.02)
    except Cancelled:
        trace_sync("end", ctx.claim)
        raise


@task("leaves", on_interrupt="requeue")
def leaves(_ctx: SyncContext, payload: Object) -> None:
    """Ends its process under the worker's eyes."""
    os._exit(payload["code"])


@task("exits")
async def exits(_ctx: Context, _payload: Object) -> None:
    """Tries to take its worker along."""
    raise SystemExit(7)


@task("slow", hard_timeout_seconds=0.5)
async def slow(ctx: Context, _payload: Object) -> None:
    await ctx.progress(0.1)
    await asyncio.sleep(60)


@task("nonsense")
async def nonsense(_ctx: Context, _payload: Object) -> float:
    return float("nan")


async def stop(after: Aftermath, submission: Submission) -> Object:
    """The stub can't stop a render; that it was asked to shows in its log."""
    note = {"what": "stop", "task": str(after.task_id), "epoch": 0, "worker": "", "key": submission.key}
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        (await client.post(os.environ["RENDER_URL"] + "/trace", json=note)).raise_for_status()
    return {"stopped": True}


@task("stoppable", on_interrupt="requeue", on_cancel=stop)
async def stoppable(ctx: Context, payload: Object) -> None:
    """Asks the provider, and then waits for longer than any test."""
    await ctx.submission("frame", provider="render", request={"seconds": 60}, call=submit)
    await asyncio.sleep(600)
