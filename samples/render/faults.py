"""Tasks that do what tasks must not do, for trying out what becomes of them.

Load them with SLACKWATER_TASKS=samples.render.tasks,samples.render.faults.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from samples.render.provider import trace
from slackwater.sdk import Context, task

Object = dict[str, Any]


@task("block", on_interrupt="requeue")
async def block(ctx: Context, payload: Object) -> Object:
    """Blocks the worker's event loop. Longer than the liveness limit, and the kubelet restarts the worker."""
    await trace("start", ctx.claim)
    time.sleep(payload["seconds"])  # noqa: ASYNC251 - that is the fault
    await trace("end", ctx.claim)
    return {"blocked": payload["seconds"]}


@task("spin", on_interrupt="requeue")
async def spin(ctx: Context, payload: Object) -> Object:
    """Burns bytecode on the worker's event loop."""
    await trace("start", ctx.claim)
    until, rounds = time.monotonic() + payload["seconds"], 0
    while time.monotonic() < until:
        rounds += 1
    await trace("end", ctx.claim)
    return {"rounds": rounds}


@task("poison", on_interrupt="requeue")
async def poison(ctx: Context, payload: Object) -> None:
    """Kills its own worker, again and again."""
    await trace("start", ctx.claim)
    os.kill(os.getpid(), signal.SIGKILL)
