"""The doctor's checks. Rule: each finding says what was found and, if that is wrong, how to mend it.

`examine` gathers; what a figure means is decided by the pure functions of `verdicts`, so each can be tried on its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from redis.asyncio import Redis
from redis.exceptions import RedisError

from slackwater import migrations
from slackwater.cli import verdicts
from slackwater.cli.common import DatabaseSettings, RedisSettings
from slackwater.cli.verdicts import Finding
from slackwater.errors import SettingsError, SlackwaterError
from slackwater.logging import redact
from slackwater.redis_client import redis_client
from slackwater.schema import SCHEMA
from slackwater.settings import Constants, StoreSettings, load
from slackwater.store.url import plain_url

CONNECT_SECONDS = 5
_LISTEN_SECONDS = 3.0
_PROBE_CHANNEL = "slackwater_doctor"

_SERVER = """
    SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS standby,
           current_setting('default_transaction_read_only') AS read_only, current_setting('fsync') AS fsync,
           current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('max_connections')::int AS max_connections,
           current_setting('idle_in_transaction_session_timeout') AS idle,
           extract(epoch FROM clock_timestamp())::float8 AS now,
           to_regclass('slackwater.claim') IS NOT NULL AS tables,
           to_regclass('slackwater.alembic_version') IS NOT NULL AS versioned
"""
_RIGHTS = """
    SELECT c.relname AS name, c.relkind AS kind,
           CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
                ELSE has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                 AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') END AS allowed
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'slackwater' AND c.relkind IN ('r', 'S') AND c.relname <> 'alembic_version'
"""
_USAGE = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"


async def examine() -> list[Finding]:
    """All findings, in the order in which one would mend them."""
    findings = _settings()
    findings += await _postgres()
    findings += await _redis()
    return findings


def _settings() -> list[Finding]:
    try:
        load(Constants)
    except SettingsError as error:
        return [verdicts.settings(str(error))]
    return [verdicts.settings(None)]


async def _postgres() -> list[Finding]:
    try:
        url = plain_url(load(DatabaseSettings).database_url.get_secret_value())
    except SlackwaterError as error:
        return [verdicts.database_url(str(error))]
    try:
        before = time.time()
        async with _connected(url) as connection:
            row = await _one(connection, _SERVER)
            after = time.time()
            findings = [verdicts.connected("postgres", None), *verdicts.server(row)]
            findings.append(verdicts.clock("postgres", row["now"], before, after))
            findings += await _tables(connection, row)
    except (psycopg.Error, OSError, TimeoutError) as error:
        return [verdicts.connected("postgres", _cause(error))]
    return [*findings, await _listening(url)]


async def _tables(connection: psycopg.AsyncConnection[dict[str, Any]], server: Mapping[str, Any]) -> list[Finding]:
    allowed = await (await connection.execute(_USAGE, (SCHEMA,))).fetchone()
    if allowed is None:
        return [verdicts.migrated("", migrations.head())]
    if not next(iter(allowed.values())):
        return [verdicts.permissions(["the schema itself"])]
    rights = await (await connection.execute(_RIGHTS)).fetchall()
    denied = sorted(row["name"] for row in rights if not row["allowed"])
    findings = [verdicts.permissions(denied)]
    with suppress(psycopg.errors.InsufficientPrivilege):  # named above
        version = ""
        if server["versioned"]:
            version = (await _one(connection, "SELECT version_num FROM slackwater.alembic_version"))["version_num"]
        findings.append(verdicts.migrated(version, migrations.head()))
        if server["tables"]:
            row = await (await connection.execute("SELECT document FROM slackwater.policy")).fetchone()
            findings.append(verdicts.policy(None if row is None else row["document"]))
    return findings


async def _listening(url: str) -> Finding:
    """Whether a notification arrives on the URL that workers listen on. PgBouncer's transaction mode loses them."""
    direct = None
    try:
        settings = load(StoreSettings)
        direct = settings.database_direct_url
        url = plain_url(settings.listen_url)
    except SettingsError:
        pass  # REDIS_URL is missing, which has a finding of its own
    try:
        async with _connected(url) as listener, _connected(url) as teller:
            await listener.execute(f"LISTEN {_PROBE_CHANNEL}")
            await teller.execute("SELECT pg_notify(%s, 'x')", (_PROBE_CHANNEL,))
            async for _ in listener.notifies(timeout=_LISTEN_SECONDS, stop_after=1):
                return verdicts.listening(None, direct=direct is not None)
    except (psycopg.Error, OSError, TimeoutError, SlackwaterError) as error:
        return verdicts.listening(_cause(error), direct=direct is not None)
    return verdicts.listening("no notification arrived", direct=direct is not None)


async def _redis() -> list[Finding]:
    try:
        client = redis_client(load(RedisSettings).redis_url.get_secret_value(), Constants.model_construct())
    except SlackwaterError as error:
        return [verdicts.redis_url(str(error))]
    try:
        return await _redis_server(client)
    except (RedisError, OSError, TimeoutError) as error:
        return [verdicts.connected("redis", _cause(error))]
    finally:
        await client.aclose()


async def _redis_server(client: Redis) -> list[Finding]:
    before = time.time()
    seconds, micros = await client.time()
    after = time.time()
    info = await client.info()
    findings = [
        verdicts.connected("redis", None),
        verdicts.redis_server(info),
        verdicts.clock("redis", seconds + micros / 1e6, before, after),
    ]
    try:
        policy = (await client.config_get("maxmemory-policy")).get("maxmemory-policy")
    except RedisError:  # managed servers forbid CONFIG; INFO says it too
        policy = info.get("maxmemory_policy")
    findings.append(verdicts.eviction(policy))
    try:
        await client.eval("return 1", 0)
    except RedisError as error:
        findings.append(verdicts.scripts(_cause(error)))
    else:
        findings.append(verdicts.scripts(None))
    return findings


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[psycopg.AsyncConnection[dict[str, Any]]]:
    async with asyncio.timeout(2 * CONNECT_SECONDS):
        connection = await psycopg.AsyncConnection.connect(
            url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS, row_factory=dict_row
        )
    async with connection:
        yield connection


async def _one(connection: psycopg.AsyncConnection[dict[str, Any]], statement: LiteralString) -> dict[str, Any]:
    row = await (await connection.execute(statement)).fetchone()
    assert row is not None
    return dict(row)


def _cause(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return redact(text[0]) if text else type(error).__name__
