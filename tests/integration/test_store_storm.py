"""Everything at once: workers, sweeps, cancels and repeats at random; what the rules promise holds at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from slackwater.claim import Claim, Done, Failed, Ground, OnInterrupt
from slackwater.errors import LeaseLost
from slackwater.retry import RetryDecision
from slackwater.store import claiming, generation, recovery, submissions, writing
from tests.integration.world import World, until

TASKS, WORKERS = 40, 6


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_task_ends_once_its_money_moves_once_and_its_events_have_no_gap(world: World, seed: int) -> None:
    dice = random.Random(seed)
    tasks = [await world.task(order=i) for i in range(TASKS)]
    for number in range(WORKERS):
        await world.worker(f"w{number}", pod=f"pod{number}")
    accepted: Counter[tuple[UUID, int]] = Counter()
    ended = asyncio.Event()

    async def run(claim: Claim) -> None:
        """One execution, which may be overtaken at any line."""
        for counter in range(1, dice.randint(1, 3)):
            await writing.add_event(world.store, claim, counter, "frame", {})
        if dice.random() < 0.5:
            made = await submissions.intend(world.store, claim, "render", "stub", {"frame": 1})
            if dice.random() < 0.7:
                await submissions.resolve(world.store, claim, "render", made.n, {"url": "x"})
        for _ in range(dice.randint(1, 2)):  # a reply lost now and then
            match dice.choice(["done", "done", "failed", "retry", "back"]):
                case "done":
                    await writing.finish(world.store, claim, Done({"n": 1}))
                case "failed":
                    await writing.finish(world.store, claim, Failed("Boom", "it broke"))
                case "retry":
                    await writing.finish(world.store, claim, Failed("B", "b"), retry=RetryDecision(0.0, "again"))
                case _:
                    await writing.hand_back(
                        world.store, claim, reason="Drain", started=True, on_interrupt=OnInterrupt.REQUEUE
                    )
        accepted[claim.task_id, claim.epoch] += 1

    async def work(worker_id: str) -> None:
        under = await generation.read_generation(world.store)
        while not ended.is_set():
            found = await claiming.candidates(world.store, queues=["default"], types=["t"], limit=4)
            if not found:
                await asyncio.sleep(0.005)
                continue
            claimed = await world.try_claim(dice.choice(found), worker_id, generation=under)
            if claimed is not None:
                try:
                    await run(claimed.claim)
                except LeaseLost:
                    continue

    async def disturb() -> None:
        while not ended.is_set():
            for seen in await recovery.running_claims(world.store):
                if dice.random() < 0.3:
                    ground = dice.choice([Ground.WITNESSED, Ground.CANCELLED, Ground.ADMIN, Ground.STALE])
                    if ground is Ground.WITNESSED or dice.random() < 0.2:
                        await recovery.take_away(world.store, seen, ground)
            await asyncio.sleep(0.002)

    async def watch() -> None:
        at_rest = "SELECT count(*)::int AS n FROM slackwater.claim WHERE state IN ('queued', 'running')"
        await until(lambda: quiet(at_rest), seconds=45)
        ended.set()

    async def quiet(at_rest: str) -> bool:
        return not (await world.one(at_rest))["n"]

    async with asyncio.timeout(50):
        await asyncio.gather(watch(), disturb(), *(work(f"w{number}") for number in range(WORKERS)))

    states: Counter[str] = Counter()
    for task_id in tasks:
        row = await world.row(task_id)
        states[row["state"]] += 1
        money = (row["charged"] is not None, row["refunded"] is not None)
        assert {
            "done": money == (True, False),
            "failed": money == (False, True),
            "cancelled": money in {(True, False), (False, True)},
            "unknown": money == (False, False),
        }[row["state"]], row
        assert (row["result"] is not None) is (row["state"] == "done")
        assert row["token"] is None
        events = await world.events(task_id)
        assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
        assert [kind for _, kind in events].count("started") == row["epoch"]
        assert events[-1][1] == row["state"]
        ends = await world.one(
            "SELECT count(*)::int AS n, count(DISTINCT epoch)::int AS epochs FROM slackwater.event"
            " WHERE task_id = %(id)s AND counter < 0",
            id=task_id,
        )
        assert ends == {"n": row["epoch"], "epochs": row["epoch"]}, "each execution ended exactly once"
    assert states["done"] > 0
    assert all(times == 1 for times in accepted.values())
