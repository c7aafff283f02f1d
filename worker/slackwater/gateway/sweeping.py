"""The gateway's share of the sweeps. Rule: whoever is up heals; a gateway alone still ends what nobody serves.

Each kind of sweep has a row in the store that lets one process run the round: many gateways do no more work than one.
"""

from __future__ import annotations

import asyncio

from slackwater.errors import SlackwaterError
from slackwater.logging import logger
from slackwater.slots import Slots
from slackwater.store import Store
from slackwater.sweep import run_due

log = logger("slackwater.sweep")


async def sweep_forever(store: Store, slots: Slots, *, seconds: float) -> None:
    """Ask whether something is due, at once and then every `seconds`, until cancelled."""
    while True:
        try:
            report = await run_due(store, slots)
        except SlackwaterError as error:
            log.warning("no sweep", cause=type(error).__name__)
        else:
            if report.errors:
                log.warning("a sweep had errors", count=len(report.errors))
            if report.expired or report.stale or report.overrun or report.timed_out:
                log.info(
                    "swept",
                    expired=report.expired,
                    stale=report.stale,
                    overrun=report.overrun,
                    timed_out=report.timed_out,
                )
        await asyncio.sleep(seconds)
