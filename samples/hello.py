"""The smallest task, without a provider: `slackwater dev samples.hello`."""

from __future__ import annotations

import asyncio
from typing import Any

from slackwater.sdk import Context, task


@task("hello", on_interrupt="requeue")
async def hello(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Greets `{"name": …}` after `{"seconds": …}`."""
    seconds = float(payload.get("seconds", 0))
    for step in range(1, 11):
        await asyncio.sleep(seconds / 10)
        await ctx.progress(step / 10)
    return {"greeting": f"Hello, {payload.get('name', 'world')}."}
