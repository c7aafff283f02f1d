"""Fixtures on real servers of our own (see `servers`). The migrated database is emptied between tests, not remade."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from redis.asyncio import Redis

from slackwater import migrations
from slackwater.schema import metadata
from slackwater.settings import Constants
from slackwater.store import Store
from tests.integration.servers import Postgres, Valkey
from tests.integration.world import World

_PRESUMED = {"slot_generation", "sweep", "timeline", "policy"}
_POLICY = "CREATE TABLE IF NOT EXISTS public.first_policy AS SELECT document FROM slackwater.policy"
# The tables stay small, so deleting is several times faster than truncating, which makes new files.
_EMPTY = "".join(f"DELETE FROM {table};" for table in reversed(metadata.sorted_tables) if table.name not in _PRESUMED)
_RESET = """
    UPDATE slackwater.slot_generation SET generation = 0, raised_at = '-infinity';
    UPDATE slackwater.sweep SET last = '-infinity', quiet_until = NULL;
    UPDATE slackwater.timeline SET name = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), changed_at = '-infinity';
    INSERT INTO slackwater.policy (id, document) SELECT 1, document FROM public.first_policy
        ON CONFLICT (id) DO UPDATE SET document = excluded.document;
"""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    # A short path of its own: a socket's path may have 107 characters.
    directory = Path(tempfile.mkdtemp(prefix="swpg"))
    server = Postgres(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Postgres) -> str:
    """A migrated database; tests through `store` find it empty."""
    url = postgres_server.url()
    migrations.upgrade(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POLICY)
    return url


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Valkey]:
    directory = Path(tempfile.mkdtemp(prefix="swrd"))
    server = Valkey(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url(redis_server: Valkey) -> str:
    return redis_server.url


@pytest.fixture
def constants() -> Constants:
    """The protocol's own figures; a test that needs others overrides this fixture."""
    return Constants()


@pytest.fixture
async def store(postgres_url: str, constants: Constants) -> AsyncIterator[Store]:
    """A store on an empty, migrated database."""
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute(_EMPTY + _RESET)
    opened = Store.connect(postgres_url, constants=constants, pool_size=20)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def world(store: Store, postgres_url: str) -> AsyncIterator[World]:
    opened = World(store, postgres_url)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on an empty server of our own."""
    client = Redis.from_url(redis_url)
    await client.flushall()
    try:
        yield client
    finally:
        await client.aclose()
