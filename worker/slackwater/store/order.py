"""Places in the fair order, read and kept in the store. Rule: used only under the locks of admission.

The rule itself is pure (`slackwater.fairness`); here are the shares and the levels that it needs.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.fairness import PRIORITY_STEP, Share, place, virtual_time
from slackwater.store import admission_sql as sql


class Order:
    """One user's shares while one request is admitted: each (queue, channel) is read once."""

    def __init__(self, connection: AsyncConnection, user_id: str, weight: float) -> None:
        self._connection = connection
        self._user_id = user_id
        self._weight = weight
        self._levels: dict[tuple[str, str], float] = {}
        self._shares: dict[str, Share] = {}
        self._closed: dict[str, bool] = {}

    async def closed(self, queue: str, channel: str) -> bool:
        """Whether every pool that serves the queue is Closed. One that none serves yet takes tasks up to the limits."""
        if queue not in self._closed:
            await self._read(queue, channel)
        return self._closed[queue]

    async def key(self, queue: str, channel: str, *, cost: float, priority: int) -> float:
        """The stored key of the user's next task there."""
        if (queue, channel) not in self._levels:
            await self._read(queue, channel)
        placed = place(self._shares[queue], self._levels[queue, channel], cost=cost, priority=priority)
        self._shares[queue] = placed.share
        return placed.key

    async def save(self) -> None:
        for queue, share in self._shares.items():
            values = {"queue": queue, "user_id": self._user_id, "finish": share.finish}
            await self._connection.execute(sql.SAVE_SHARE, values)

    async def _read(self, queue: str, channel: str) -> None:
        values = {"user_id": self._user_id, "queue": queue, "channel": channel, "step": PRIORITY_STEP}
        row = (await self._connection.execute(sql.STANDING, values)).one()
        self._closed[queue] = bool(row.closed)
        self._levels[queue, channel] = virtual_time(row.running, row.due, row.later)
        if queue not in self._shares:
            self._shares[queue] = Share(self._weight, row.finish or 0.0, int(row.pending))
