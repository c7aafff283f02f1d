"""What the harness stands on: servers and connections, opened together and closed in the opposite order.

Rule: its executions are the worker's own; the one thing added is that whoever waits is told after each effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from slackwater import migrations
from slackwater.claim import Claim, Done, Failed, HandedBack, Submission
from slackwater.embedded import EmbeddedPostgres, EmbeddedValkey
from slackwater.links import MainLinks
from slackwater.retry import RetryDecision
from slackwater.settings import StoreSettings
from slackwater.task import TaskType

T = TypeVar("T")
LOOK_SECONDS = 0.2
"""What changes without a word of ours (a sweep, a renewal) is looked for this often."""


class Told:
    """A wait that is woken after each effect of a task, and looks again."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def tell(self) -> None:
        self._changed.set()

    async def until(self, ask: Callable[[], Awaitable[T | None]], seconds: float) -> T | None:
        """The first answer that is not None, or None when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    answer = await ask()
                    if answer is not None:
                        return answer
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await self._changed.wait()
        except TimeoutError:
            return None


class TellingLinks(MainLinks):
    """The worker's links; each write tells."""

    def __init__(self, *arguments: Any, told: Told, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._told = told

    async def progress(self, claim: Claim, fraction: float) -> None:
        await super().progress(claim, fraction)
        self._told.tell()

    async def add_event(self, claim: Claim, counter: int, kind: str, data: dict[str, Any]) -> None:
        await super().add_event(claim, counter, kind, data)
        self._told.tell()

    async def checkpoint(self, claim: Claim, data: Any) -> None:
        await super().checkpoint(claim, data)
        self._told.tell()

    async def intend(self, claim: Claim, name: str, provider: str, request: Any, after: int) -> Submission:
        intent = await super().intend(claim, name, provider, request, after)
        self._told.tell()
        return intent

    async def store_reference(self, key: str, reference: str) -> None:
        await super().store_reference(key, reference)
        self._told.tell()

    async def finish(self, claim: Claim, outcome: Done | Failed, retry: RetryDecision) -> str:
        state = await super().finish(claim, outcome, retry)
        self._told.tell()
        return state

    async def hand_back(self, claim: Claim, outcome: HandedBack, declared: TaskType) -> str:
        state = await super().hand_back(claim, outcome, declared)
        self._told.tell()
        return state


@asynccontextmanager
async def servers(database_url: str | None, redis_url: str | None) -> AsyncIterator[StoreSettings]:
    """Those that are named, and embedded ones for the others; the database's tables are at this release."""
    # A short path: a socket's may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="swtest-"))
    postgres = EmbeddedPostgres(folder / "data", folder) if database_url is None else None
    valkey = EmbeddedValkey(folder) if redis_url is None else None
    try:
        await asyncio.gather(*(server.start() for server in (postgres, valkey) if server is not None))
        database = database_url or (postgres.url if postgres else "")
        await asyncio.to_thread(migrations.upgrade, database)
        redis = redis_url or (valkey.url if valkey else "")
        yield StoreSettings(database_url=SecretStr(database), redis_url=SecretStr(redis))
    finally:
        await asyncio.gather(*(server.stop() for server in (postgres, valkey) if server is not None))
        shutil.rmtree(folder, ignore_errors=True)
