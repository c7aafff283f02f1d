"""What the demo claims, claim by claim.

Rule: pure; each claim has its evidence in words, and one false claim is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from scripts.demo.plan import RECLAIM_SECONDS, TASKS
from scripts.demo.scenario import Told


@dataclass(frozen=True)
class Claimed:
    holds: bool
    claim: str
    evidence: str


def judged(told: Told) -> list[Claimed]:
    provider = told.provider
    assert provider is not None, "the scenario asks the provider at its end"
    done = sum(state == "done" for state in told.states.values())
    charges = sum(provider.charges_by_key.values())
    lost = [r for r in provider.interrupted if r.worker not in told.killed_workers]
    back = "never" if told.back_seconds is None else f"after {told.back_seconds:.1f} s"
    ended, twice = len(provider.ends_by_task), len(provider.ended_twice)
    in_time = told.back_seconds is not None and told.back_seconds <= RECLAIM_SECONDS
    slots = "equal" if told.slots_as_running else "differ"
    return [
        Claimed(done == TASKS, "every task ended well", f"{done} of {TASKS} done"),
        Claimed(ended == TASKS and not twice, "every task finished once", f"{ended} finished, {twice} of them twice"),
        Claimed(
            charges == TASKS and not provider.paid_twice,
            "every task paid once",
            f"{charges} charges, {len(provider.paid_twice)} keys charged twice",
        ),
        Claimed(not lost, "no rollout or scaling interrupted work", f"{len(lost)} runs interrupted by them"),
        Claimed(
            not told.pods.deleted_busy,
            "no pod deleted while it held a lease",
            f"{len(told.pods.deleted_busy)} deleted busy in {len(told.pods.samples)} samples",
        ),
        Claimed(
            in_time,
            "the killed worker's renders came back",
            f"{told.killed_worker_runs} renders, running again {back} (limit {RECLAIM_SECONDS} s)",
        ),
        Claimed(
            told.slots_as_running and told.slots_left == 0,
            "slots in Redis = running tasks",
            f"under load {slots}, at the end {told.slots_left} left",
        ),
        Claimed(told.settled, "the pods settled", "as many as wanted, all new" if told.settled else "not in time"),
    ]


def interrupted(told: Told) -> int:
    """Runs that were cut off by a rollout or a scaling."""
    assert told.provider is not None
    return sum(r.worker not in told.killed_workers for r in told.provider.interrupted)
