"""Schema changes: what they build is what the code expects, and calling them at once or twice does no harm."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, pool

from slackwater import migrations
from slackwater.errors import StoreUnavailable
from slackwater.schema import SCHEMA, metadata
from slackwater.store import Store
from slackwater.store.policies import read_policy
from slackwater.store.url import driver_url
from tests.integration.servers import Postgres


@pytest.fixture
def empty_database(postgres_server: Postgres) -> Iterator[str]:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty")
        yield postgres_server.url("empty")
        connection.execute("DROP DATABASE empty WITH (FORCE)")


async def test_four_migrations_at_once_make_one_schema(empty_database: str) -> None:
    before = await asyncio.gather(*(asyncio.to_thread(migrations.upgrade, empty_database) for _ in range(4)))

    assert sorted(before) == ["", *[migrations.head()] * 3]


def test_the_migrated_schema_is_the_one_that_the_code_expects(empty_database: str) -> None:
    migrations.upgrade(empty_database)
    engine = create_engine(driver_url(empty_database), poolclass=pool.NullPool)
    with engine.connect() as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Alembic's, about what it can't compare
        options = {
            "include_schemas": True,
            "version_table_schema": SCHEMA,
            "compare_type": True,
            "compare_server_default": False,
            "include_name": lambda name, kind, _parents: kind != "schema" or name == SCHEMA,
        }
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, metadata)

    assert differences == []


async def test_a_database_that_is_not_migrated_gives_no_answer(empty_database: str) -> None:
    store = Store.connect(empty_database)
    with pytest.raises(StoreUnavailable):
        await read_policy(store)
    await store.close()


def test_a_database_of_the_first_release_moves_on_with_its_rows_and_its_workers_go_on_writing(
    empty_database: str,
) -> None:
    """What the release before writes, it can write before and after: schema changes only expand."""
    writes = """
        WITH t AS (INSERT INTO slackwater.task (id, type, queue, user_id, payload)
                   VALUES (gen_random_uuid(), 't', 'default', 'u', '{}') RETURNING id),
        k AS (INSERT INTO slackwater.claim (task_id, queue, type, user_id) SELECT id, 'default', 't', 'u' FROM t),
        m AS (INSERT INTO slackwater.settlement (task_id, n, user_id, reserved) SELECT id, 1, 'u', 1 FROM t),
        e AS (INSERT INTO slackwater.event (task_id, seq, epoch, counter, kind) SELECT id, 1, 0, 0, 'queued' FROM t),
        y AS (INSERT INTO slackwater.task_type (name, declaration) VALUES ('t', '{"on_interrupt": "fail"}')
              ON CONFLICT DO NOTHING)
        INSERT INTO slackwater.outbox (task_id, seq, kind, data) SELECT id, 1, 'queued', '{}' FROM t
    """
    migrations.upgrade(empty_database, "0001")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(writes)
        assert migrations.upgrade(empty_database) == "0001"
        connection.execute(writes)
        row = connection.execute("SELECT count(*), count(delivered_at) FROM slackwater.outbox").fetchone()
        assert row == (2, 0)
        kinds = connection.execute("SELECT kind FROM slackwater.sweep ORDER BY kind").fetchall()
        assert [kind for (kind,) in kinds] == ["expired", "orphans", "outbox", "stale", "touch"]
