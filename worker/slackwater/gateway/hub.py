"""Wakes the streams of this gateway. Rule: a notification is a hint; each stream still looks by itself, rarely.

One connection listens for all streams. Waiters are found by task, so that an event wakes only its own readers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from uuid import UUID

from slackwater.schema import EVENT_CHANNEL
from slackwater.wake import listen


class Hub:
    def __init__(self, url: str) -> None:
        self._url = url
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def run(self) -> None:
        """Listen until cancelled."""
        await listen(self._url, {EVENT_CHANNEL: self.told})

    def told(self, task_id: str) -> None:
        """An event of this task was stored; '' stands for any, when notifications may have been missed."""
        found = [self._waiting.get(task_id, set())] if task_id else list(self._waiting.values())
        for events in found:
            for event in events:
                event.set()

    @contextlib.contextmanager
    def following(self, task_id: UUID) -> Iterator[asyncio.Event]:
        """Set whenever there may be news. Enter it before the first look, clear it before each."""
        event, key = asyncio.Event(), str(task_id)
        self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]

    def __len__(self) -> int:
        return sum(len(events) for events in self._waiting.values())


async def news(event: asyncio.Event, seconds: float) -> None:
    """Wait for news, or until it is time to look anyway."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
