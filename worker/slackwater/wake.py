"""What wakes a worker that waits for tasks: NOTIFY on a direct connection, the end of an execution, or the poll.

Rule: a notification is a hint. A lost one costs at most a poll's length; the connection comes back with growing pauses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import psycopg

from slackwater.logging import logger
from slackwater.spread import spread

log = logger("slackwater.wake")
LONGEST_PAUSE_SECONDS = 10.0


class Wake:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def up(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):  # wait_for would swallow a cancellation beside the event
                await self._event.wait()
        self._event.clear()


async def for_ever(work: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]) -> None:
    """A side task: whatever fails is logged, and the next turn tries again."""
    while True:
        try:
            await work()
        except Exception as error:  # see above
            log.warning("side task failed", work=work.__name__, cause=f"{type(error).__name__}: {error}")
        await pause()


async def listen(url: str, handlers: Mapping[str, Callable[[str], None]]) -> None:
    """Listen on the given channels for ever; each payload goes to its handler. `url` must keep a session."""
    pause = 0.5
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                url, autocommit=True, connect_timeout=5, application_name="slackwater-listen", keepalives_idle=10
            ) as connection:
                for channel in handlers:
                    await connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
                pause = 0.5
                for channel, handler in handlers.items():
                    handler("")  # what was told before we listened
                    log.debug("listening", channel=channel)
                async for told in connection.notifies():
                    handlers[told.channel](told.payload)
        except (psycopg.Error, OSError) as error:
            log.warning("listening interrupted", cause=f"{type(error).__name__}: {error}")
        await asyncio.sleep(spread(pause))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
