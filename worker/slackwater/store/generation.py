"""The generation of the slots (rule 6). Rule: Redis is rebuilt from the running claims, and nobody claims meanwhile.

A raise waits for the claims in flight: these hold the generation's advisory lock shared and name the generation that
their slots were taken under. After it commits no claim under the old generation can come, so the running claims read
then, expired ones included, are all there are; their tokens are added (never deleted) and the marker is set, in one
script that refuses if the marker there is not older.
"""

from __future__ import annotations

from enum import StrEnum

from slackwater.schema import GENERATION_LOCK
from slackwater.slots import Holder, Lost, Slots, Touched
from slackwater.store import Store
from slackwater.store.sql import sql

_READ = sql("SELECT generation FROM {s}.slot_generation")
_ALONE = f"SELECT pg_advisory_xact_lock({GENERATION_LOCK})"
_DUE = sql("""
    SELECT generation, raised_at <= clock_timestamp() - make_interval(secs => :interval)
                       OR raised_at > clock_timestamp() AS due
    FROM {s}.slot_generation
""")
_RAISE = sql("""
    UPDATE {s}.slot_generation SET generation = generation + 1, raised_at = clock_timestamp()
    WHERE generation = :seen RETURNING generation
""")
_HOLDERS = sql("""
    SELECT k.token, coalesce(w.pool_uid, '') AS pool_uid, k.channel, k.user_id
    FROM {s}.claim k LEFT JOIN {s}.worker w ON w.id = k.worker_id
    WHERE k.state = 'running'
    UNION ALL
    SELECT k.old_token, coalesce(w.pool_uid, ''), k.channel, k.user_id
    FROM {s}.claim k LEFT JOIN {s}.worker w ON w.id = k.worker_id
    WHERE k.old_token IS NOT NULL AND k.claimable_from > clock_timestamp()
""")


class Restored(StrEnum):
    """What came of an attempt to restore the slots."""

    WHOLE = "whole"
    """They were there already, for the present generation."""
    REBUILT = "rebuilt"
    WAIT = "wait"
    """Raised less than 15 s ago: somebody is at it."""


async def read_generation(store: Store) -> int:
    """The present generation; every slot script names it."""
    async with store.transaction() as connection:
        generation: int = (await connection.execute(_READ)).scalar_one()
    return generation


async def holders(store: Store) -> list[Holder]:
    """Whoever may act under a slot: running claims, expired ones too, and fenced ones until their lease's end."""
    async with store.transaction() as connection:
        return [Holder(*row) for row in await connection.execute(_HOLDERS)]


async def touch(store: Store, slots: Slots) -> Touched | Lost:
    """One touch: marker and members of all holders. Lost: the slots have to be restored."""
    generation = await read_generation(store)
    seen = await slots.look(generation)
    if isinstance(seen, Lost):
        return seen
    return await slots.touch(generation, await holders(store), read_at=seen)


async def restore(store: Store, slots: Slots, *, denied_under: int | None = None) -> Restored:
    """Raise the generation and rebuild, if the slots are lost; by one process, at most every 15 s.

    `denied_under`: the generation under which a token was denied, or unrenewable for 40 s, that a database renewal sent
    afterwards still confirmed; then even slots that look whole are raised, once. Raises StoreUnavailable or
    SlotsUnavailable: nothing is known; call again.
    """
    async with store.transaction(_ALONE) as connection:
        seen = (await connection.execute(_DUE, {"interval": store.constants.raise_seconds})).one()
        whole = not isinstance(await slots.look(seen.generation), Lost)
        if whole and denied_under != seen.generation:
            return Restored.WHOLE
        if not seen.due:
            return Restored.WAIT
        raised: int = (await connection.execute(_RAISE, {"seen": seen.generation})).scalar_one()
    await slots.rebuild(raised, await holders(store))
    return Restored.REBUILT
