"""Schema changes. Rule: expand, then contract, so that one release's workers run on the next one's schema and back.

Versions are numbered files in `versions/`. All pending ones run in one transaction under an advisory transaction
lock, which works through PgBouncer: concurrent calls wait for each other and the later ones find nothing to do, and
a failed call leaves nothing behind.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, pool, text

from slackwater.schema import SCHEMA
from slackwater.store.sql import sql
from slackwater.store.url import driver_url

MIGRATION_LOCK = 0x51AC7
_WAIT_SECONDS = 120


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the database at `url` to `revision`; returns the revision that it had before ('' when it was empty).

    Blocking. Raises sqlalchemy.exc.DBAPIError when the database can't be reached or a change fails.
    """
    engine = create_engine(
        driver_url(url), poolclass=pool.NullPool, connect_args={"prepare_threshold": None, "connect_timeout": 10}
    )
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL lock_timeout = '{_WAIT_SECONDS}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        before = current(connection)
        command.upgrade(_config(connection), revision)
    return before


def current(connection: Connection) -> str:
    """The revision that the database has, '' if none."""
    known = connection.execute(text(f"SELECT to_regclass('{SCHEMA}.alembic_version')")).scalar()
    if known is None:
        return ""
    return str(connection.execute(sql("SELECT version_num FROM {s}.alembic_version")).scalar() or "")


def head() -> str:
    """The newest revision that this release knows."""
    return str(ScriptDirectory.from_config(_config(None)).get_current_head())


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
