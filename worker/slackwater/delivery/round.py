"""A round of deliveries. Rule: each webhook is served beside the others, so a slow one holds up none of them.

Within a webhook the heads of the tasks' queues go out, a few at once; a task's next event follows when the one before
was taken, or given up. A round ends when nothing is due or its time is over; the next turn goes on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.delivery.sending import HttpSender, Send
from slackwater.errors import SlackwaterError
from slackwater.logging import logger
from slackwater.settings import DeliverySettings
from slackwater.store import Store, outbox, webhooks
from slackwater.store.rounds import due

log = logger("slackwater.delivery")
KIND = "outbox"
AT_ONCE = 8
ROUND_SECONDS = 20.0


@dataclass
class Report:
    delivered: int = 0
    failed: int = 0
    dead: int = 0


def wait_seconds(tries: int, settings: DeliverySettings, random_: Callable[[], float] = random.random) -> float:
    """After that many tries: doubling up to the longest, a random time in the upper half."""
    window = min(settings.first_wait_seconds * 2.0 ** min(tries - 1, 40), settings.longest_wait_seconds)
    return window * (0.5 + random_() / 2)


async def deliver_forever(store: Store, settings: DeliverySettings) -> None:
    """Take part in the deliveries until cancelled. Whoever hits the sweep's row runs the round."""
    sender = HttpSender(timeout_seconds=settings.timeout_seconds)
    try:
        while True:
            try:
                if await due(store, KIND, settings.sweep_seconds) is not None:
                    report = await deliver(store, sender, settings)
                    if report != Report():
                        log.info("delivered", ok=report.delivered, failed=report.failed, dead=report.dead)
            except SlackwaterError as error:
                log.warning("no deliveries", cause=type(error).__name__)
            except Exception as error:  # a fault of ours must not end deliveries for ever
                log.error("deliveries broke", exc_info=error)
            await asyncio.sleep(settings.sweep_seconds)
    finally:
        await sender.close()


async def deliver(store: Store, send: Send, settings: DeliverySettings) -> Report:
    """Hand new outbox rows to the webhooks, then send what is due."""
    report = Report()
    while await outbox.hand_out(store) == outbox.BATCH:
        pass
    names = [webhook.name for webhook in await webhooks.webhooks(store)]
    results = await asyncio.gather(
        *(_serve(store, name, send, settings, report) for name in names), return_exceptions=True
    )
    for name, result in zip(names, results, strict=True):
        if isinstance(result, BaseException):
            log.warning("a webhook's round failed", webhook=name, cause=f"{type(result).__name__}: {result}")
    return report


async def _serve(store: Store, webhook: str, send: Send, settings: DeliverySettings, report: Report) -> None:
    until = time.monotonic() + ROUND_SECONDS
    hold = 2 * settings.timeout_seconds + 10
    while time.monotonic() < until:
        letters = await outbox.take(store, webhook, limit=AT_ONCE, hold_seconds=hold)
        if not letters:
            return
        await asyncio.gather(*(_send(store, letter, send, settings, report) for letter in letters))


async def _send(store: Store, letter: outbox.Letter, send: Send, settings: DeliverySettings, report: Report) -> None:
    sent = await send(letter)
    if sent.error is None:
        await outbox.delivered(store, letter)
        report.delivered += 1
        return
    dead = letter.tries >= settings.tries
    wait = None if dead else wait_seconds(letter.tries, settings)
    await outbox.failed(store, letter, error=sent.error, wait_seconds=wait)
    report.failed += 1
    report.dead += dead
    level = log.error if dead else log.warning
    level("not delivered", webhook=letter.webhook, task=str(letter.task_id), tries=letter.tries, cause=sent.error)
