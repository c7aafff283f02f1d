"""The policy's row. Rule: read strictly or not at all; a save is audited in its own transaction."""

from __future__ import annotations

from slackwater.errors import InvalidInput, StoreUnavailable
from slackwater.policy import Policy, PolicyCache, unreadable
from slackwater.store import Store
from slackwater.store.sql import as_json, sql

_READ = sql("SELECT document FROM {s}.policy WHERE id = 1")
_WRITE = sql("""
    INSERT INTO {s}.policy (id, document) VALUES (1, CAST(:document AS jsonb))
    ON CONFLICT (id) DO UPDATE SET document = excluded.document, updated_at = clock_timestamp()
""")
_AUDIT = sql("INSERT INTO {s}.audit (who, action, detail) VALUES (:who, 'policy', CAST(:document AS jsonb))")


async def read_policy(store: Store) -> Policy:
    """The policy as it stands now. Raises PolicyUnreadable: no answer within 3 s, no row, or an invalid document."""
    try:
        async with store.transaction(seconds=store.constants.policy_timeout_seconds) as connection:
            row = (await connection.execute(_READ)).one_or_none()
        if row is None:
            raise InvalidInput("policy", None, "has no row")
        return Policy.read(row.document)
    except (InvalidInput, StoreUnavailable) as error:
        raise unreadable(error) from error


async def write_policy(store: Store, policy: Policy, *, who: str) -> None:
    """Save a policy. Drop the caller's cache afterwards; others read it again within 2 s."""
    document = as_json(Policy.read(policy.document()).document())
    async with store.transaction() as connection:
        await connection.execute(_WRITE, {"document": document})
        await connection.execute(_AUDIT, {"who": who, "document": document})


def policy_cache(store: Store) -> PolicyCache:
    """A cache over this store, for the claiming loop."""
    return PolicyCache(lambda: read_policy(store), ttl_seconds=store.constants.policy_ttl_seconds)
