"""Webhooks: where the outbox goes. Rule: an administrator's word alone decides, is audited, and never shows a secret
again after it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from slackwater.delivery.address import parse
from slackwater.delivery.signing import new_secret
from slackwater.limits import check_name
from slackwater.store import Store
from slackwater.store.admin import audit
from slackwater.store.sql import TEXTS, sql

_ALL = sql("SELECT name, url, kinds, private, created_at FROM {s}.webhook ORDER BY name")
_PUT = sql(
    """
    INSERT INTO {s}.webhook (name, url, secrets, kinds, private) VALUES (:name, :url, :secrets, :kinds, :private)
    ON CONFLICT (name) DO UPDATE SET url = excluded.url, kinds = excluded.kinds, private = excluded.private
    RETURNING secrets[1] = :secret AS made
    """,
    secrets=TEXTS,
    kinds=TEXTS,
)
_ROTATE = sql("UPDATE {s}.webhook SET secrets = array[:secret, secrets[1]] WHERE name = :name RETURNING name")
_REMOVE = sql("DELETE FROM {s}.webhook WHERE name = :name RETURNING name")


@dataclass(frozen=True, slots=True)
class Webhook:
    name: str
    url: str
    kinds: tuple[str, ...]
    private: bool
    created_at: datetime


async def webhooks(store: Store) -> list[Webhook]:
    async with store.transaction() as connection:
        rows = (await connection.execute(_ALL)).all()
    return [Webhook(row.name, row.url, tuple(row.kinds), row.private, row.created_at) for row in rows]


async def put(
    store: Store, name: str, url: str, *, kinds: Sequence[str] = (), private: bool = False, who: str
) -> str | None:
    """Make it, or change it and keep its secret. Returns the secret of a new one, which is shown this once.

    `kinds`: only these events; none: all. `private`: its host may lead to an address that is not public.
    """
    check_name(name, field="webhook")
    parse(url)
    for kind in kinds:
        check_name(kind, field="kinds")
    secret = new_secret()
    values = {"name": name, "url": url, "secret": secret, "secrets": [secret], "kinds": list(kinds), "private": private}
    async with store.transaction() as connection:
        made = bool((await connection.execute(_PUT, values)).scalar_one())
        detail = {"webhook": name, "url": url, "kinds": list(kinds), "private": private}
        await audit(connection, who, "webhook", None, detail)
    return secret if made else None


async def rotate(store: Store, name: str, *, who: str) -> str | None:
    """A new secret; the one before goes on signing beside it until the next rotation. None: no such webhook."""
    secret = new_secret()
    async with store.transaction() as connection:
        if (await connection.execute(_ROTATE, {"name": name, "secret": secret})).one_or_none() is None:
            return None
        await audit(connection, who, "webhook rotate", None, {"webhook": name})
    return secret


async def remove(store: Store, name: str, *, who: str) -> bool:
    """Together with its deliveries, sent or not. False: no such webhook."""
    async with store.transaction() as connection:
        if (await connection.execute(_REMOVE, {"name": name})).one_or_none() is None:
            return False
        await audit(connection, who, "webhook remove", None, {"webhook": name})
    return True
