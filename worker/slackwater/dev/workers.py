"""The worker of a development run, and its successor. Rule: code that can't be loaded never replaces code that runs.

On a change the next worker starts beside the present one; only when it is registered does the present one drain: it
claims nothing more, finishes what it runs and ends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slackwater.dev.screen import Screen
from slackwater.embedded.process import Child

SECOND_SIGNAL_SECONDS = 0.3
PATIENCE_SECONDS = 20.0
MAX_RESTART_SECONDS = 10.0


class Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.types: list[str] | None = None
        """Known once it is registered."""
        self.child: Child | None = None

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running

    def heard(self, line: Mapping[str, Any]) -> None:
        if line.get("message") == "registered":
            self.types = [str(name) for name in line.get("types", [])]


class Workers:
    """`turn` is called every fraction of a second; between two calls nothing changes."""

    def __init__(
        self,
        screen: Screen,
        command: list[str],
        environment: Mapping[str, str],
        directory: Path,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._screen = screen
        self._command = command
        self._environment = environment
        self._directory = directory
        self._clock = clock
        self._count = 0
        self._restart_at: float | None = None
        self._pause = 1.0
        self.present: Worker | None = None
        self._next: Worker | None = None
        self._draining: list[Worker] = []

    async def start(self) -> None:
        """Start the next worker; one that was starting already is not waited for."""
        if self._next is not None and self._next.child is not None:
            await self._next.child.stop(signal.SIGKILL, patience=1)
        self._count += 1
        worker = self._next = Worker(self._count)
        self._restart_at = None

        def show(text: str) -> None:
            worker.heard(self._screen.child("worker", text))

        worker.child = await Child.start(
            self._command,
            output=show,
            directory=self._directory,
            environment=self._environment,
            death=signal.SIGKILL,
        )

    async def turn(self) -> bool:
        """Look at them; True: a worker has just come into service."""
        arrived = False
        if self._next is not None and self._next.types is not None:
            arrived = True
            self._pause = 1.0
            if self.present is not None:
                self._retire(self.present)
            self.present, self._next = self._next, None
        elif self._next is not None and not self._next.running:
            code = await self._ended(self._next)
            self._next = None
            what = "the worker before goes on" if self.present is not None else "no worker runs"
            self._screen.step(f"the worker did not start (exit code {code}): {what}; save the code to try again")
        if self.present is not None and not self.present.running:
            code = await self._ended(self.present)
            self.present = None
            self._screen.step(f"the worker ended (exit code {code}); another starts in {self._pause:.0f} s")
            self._restart_at = self._clock() + self._pause
            self._pause = min(2 * self._pause, MAX_RESTART_SECONDS)
        self._draining = [worker for worker in self._draining if worker.running]
        if self._restart_at is not None and self._next is None and self._clock() >= self._restart_at:
            await self.start()
        return arrived

    async def stop(self) -> None:
        """Hand running tasks back at once: whoever stops a development run does not wait for them."""
        children = [w.child for w in (self.present, self._next, *self._draining) if w is not None and w.child]
        for child in children:
            child.signal(signal.SIGTERM)
        ends = [asyncio.create_task(child.wait()) for child in children]
        if ends and (await asyncio.wait(ends, timeout=SECOND_SIGNAL_SECONDS))[1]:
            await asyncio.gather(*(child.stop(signal.SIGTERM, patience=PATIENCE_SECONDS) for child in children))
        await asyncio.gather(*ends)

    def _retire(self, worker: Worker) -> None:
        if worker.child is not None:
            worker.child.signal(signal.SIGTERM)
        self._draining.append(worker)

    async def _ended(self, worker: Worker) -> int:
        return 0 if worker.child is None else await worker.child.wait()
