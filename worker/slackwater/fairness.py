"""Fair order within a queue: start-time fair queuing. Rule: a task's place is decided once, at admission.

tag = max(virtual time, the user's finish); finish = tag + cost / weight; stored key = tag − bonus of the priority. The
smallest key is claimed first, ties in order of admission. A user with 10,000 tasks holds the tags V, V+1, … V+9999;
another user's first gets V and is next. A bonus shifts a task by a fixed number of rounds, so whatever waits is
overtaken a bounded number of times: ageing needs no sweep.

Virtual time is the level that the queue has reached for one channel, read without a lock: the largest tag among running
tasks or that of the next waiting one, whichever is further. Tags, not keys: where urgent tasks run, newcomers must not
join in front of what waits. By channel: a full channel's tasks stay behind while those of another run ahead. An error
of a round is no harm, it only sets where newcomers join.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

PRIORITY_STEP: Final = 10.0
"""Rounds (tasks of cost 1) that one step of priority is worth."""


@dataclass(frozen=True, slots=True)
class Share:
    """What is remembered of a user in a queue."""

    weight: float = 1.0
    finish: float = 0.0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """The stored key of one task, and the user's share after it."""

    key: float
    share: Share


def bonus(priority: int) -> float:
    return priority * PRIORITY_STEP


def virtual_time(running: float | None, due: float | None, later: float | None = None) -> float:
    """The level reached, from the tags. With nothing running or due, the first of the scheduled tasks keeps it, so that
    these don't wait behind newcomers that began again at 0; with no task left at all, 0 is as good as any.
    """
    known = [tag for tag in (running, due) if tag is not None]
    if known:
        return max(known)
    return 0.0 if later is None else later


def place(share: Share, virtual: float, *, cost: float, priority: int) -> Placed:
    """Place the user's next task.

    A user with nothing pending owes at most one round: what was cancelled, or ran in quieter times, is forgiven. Not
    that one: else a user who sends the next task whenever the last one was claimed would stand at the front for ever.
    """
    turn = cost / share.weight
    owed = share.finish if share.pending else min(share.finish, virtual + turn)
    tag = max(virtual, owed)
    return Placed(tag - bonus(priority), replace(share, finish=tag + turn, pending=share.pending + 1))
