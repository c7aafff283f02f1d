"""The figures of the demo. Rule: every number that it uses stands here, with its reason."""

from __future__ import annotations

import random
from dataclasses import dataclass

TASKS = 40
SECONDS = (5, 30)
"""Shortest and longest render."""
SEED = 20
REPLICAS, UP, DOWN = 3, 5, 2
CONCURRENCY = 4
RECLAIM_SECONDS = 45 + 5 + 5
"""Lease + one sweep + slack: no later may a killed worker's task start again."""
SLOT_SECONDS = 60 + 15 + 5
"""Slot + one touch + slack: no later may a killed worker's slots be free."""
OLD_IMAGE, NEW_IMAGE = "localhost/slackwater-render:v1", "localhost/slackwater-render:v2"
PLAIN_GRACE_SECONDS = 5
"""terminationGracePeriodSeconds of the Deployment in the comparison. Kubernetes' 30 s against renders of an hour,
scaled like the renders here; with 30 s for renders of at most 30 s there would be nothing to see."""


@dataclass(frozen=True)
class Render:
    key: str
    seconds: int


def renders(prefix: str) -> list[Render]:
    """The same mix at each run, so that two subjects get the same work."""
    dice = random.Random(SEED)
    return [Render(f"{prefix}-{n:02d}", dice.randint(*SECONDS)) for n in range(TASKS)]
