"""Rule 6: while the marker is taken for fresh, no running claim's member may have run out (see history/)."""

from __future__ import annotations

from uuid import UUID, uuid4

from slackwater.claim import Candidate, Identity
from slackwater.policy import Policy
from slackwater.slots import Slots, Taken, scopes
from slackwater.store import claiming, generation, recovery, registration
from tests.property.history.clock import Clock
from tests.property.history.theatre import Theatre
from tests.property.history.world import TASK

LIMIT = 1
QUEUES, TYPES = ("default",), ("t",)
HELD = scopes(pool_uid="pool", channel="c", user_id="u", policy=Policy(channels={"c": LIMIT}))


async def next_task(theatre: Theatre) -> Candidate:
    found = await claiming.candidates(theatre.store, queues=QUEUES, types=TYPES, limit=1)
    return found[0]


async def prepare(theatre: Theatre, slots: Slots) -> int:
    """Two workers, two tasks of one channel, slots restored; returns their generation."""
    await theatre.empty()
    for name in ("w1", "w2"):
        me = Identity(
            name, "pool", "pool", "", name, name, "", "", queues=("default",), concurrency=1, task_types=("t",)
        )
        await registration.register(theatre.store, me, {"t": {}})
    for order in (1, 2):
        values = {"id": uuid4(), "kind": "t", "user": "u", "channel": "c", "order": order}
        await theatre.watcher.execute(TASK, values)
    await generation.restore(theatre.store, slots)
    return await generation.read_generation(theatre.store)


async def claims_after_a_late_claim_and_two_missed_touches(theatre: Theatre) -> int:
    store, clock = theatre.store, Clock(theatre.watcher, theatre.redis)
    slots = Slots(theatre.redis, constants=store.constants)
    under = await prepare(theatre, slots)

    async def claim(worker_id: str, candidate: Candidate, token: UUID) -> None:
        await claiming.claim(store, candidate, worker_id=worker_id, token=token, generation=under)

    first, token = await next_task(theatre), uuid4()
    await slots.acquire(token, HELD, under)
    await clock.passes(store.constants.candidate_age_seconds - 1)
    await generation.touch(store, slots)  # reads the holders just before the claim
    await claim("w1", first, token)
    await clock.passes(store.constants.slot_seconds - store.constants.candidate_age_seconds + 1.5)
    second, token = await next_task(theatre), uuid4()
    if isinstance(await slots.acquire(token, HELD, under), Taken):
        await claim("w2", second, token)
    return len([seen for seen in await recovery.running_claims(store) if seen.live])


def test_a_member_outlives_the_marker_that_vouches_for_it() -> None:
    with Theatre() as theatre:
        assert theatre.run(claims_after_a_late_claim_and_two_missed_touches(theatre)) == LIMIT
