"""Places in the fair order, read and kept in the store. Rule: used only under the locks of admission.

The rule itself is pure (`slackwater.fairness`); here are the shares and the levels that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.fairness import PRIORITY_STEP, Share, place, virtual_time
from slackwater.store import admission_sql as sql


class Order:
    """One user's shares while one request is admitted. Under the user's lock; `prepare` comes first."""

    def __init__(self, connection: AsyncConnection, user_id: str) -> None:
        self._connection = connection
        self._user_id = user_id
        self._levels: dict[tuple[str, str], float] = {}
        self._shares: dict[str, Share] = {}
        self._closed: dict[str, bool] = {}

    def closed(self, queue: str) -> bool:
        """Whether every pool that serves the queue is Closed. One that none serves yet takes tasks up to the limits."""
        return self._closed[queue]

    def key(self, queue: str, channel: str, *, cost: float, priority: int, weight: float) -> float:
        """The stored key of the user's next task there."""
        share = replace(self._shares[queue], weight=weight)
        placed = place(share, self._levels[queue, channel], cost=cost, priority=priority)
        self._shares[queue] = placed.share
        return placed.key

    async def prepare(self, places: Iterable[tuple[str, str]]) -> None:
        """Read what will be needed, before the lock that everybody waits for is taken."""
        for queue, channel in dict.fromkeys(places):
            await self._read(queue, channel)

    def shares(self) -> dict[str, float]:
        """The user's new finish by queue, to be stored with the tasks."""
        return {queue: share.finish for queue, share in self._shares.items()}

    async def _read(self, queue: str, channel: str) -> None:
        values = {"user_id": self._user_id, "queue": queue, "channel": channel, "step": PRIORITY_STEP}
        row = (await self._connection.execute(sql.STANDING, values)).one()
        self._closed[queue] = bool(row.closed)
        self._levels[queue, channel] = virtual_time(row.running, row.due, row.later)
        if queue not in self._shares:
            self._shares[queue] = Share(finish=row.finish or 0.0, pending=int(row.pending))
