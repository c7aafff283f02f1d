"""The store. Rule: every write is one short transaction with time-outs, and no answer is never taken for a refusal.

`Store.transaction()` opens READ COMMITTED explicitly with SET LOCAL statement, lock and idle time-outs (5, 5, 10 s), in
one round trip, so that it works through PgBouncer in transaction mode and a frozen process holds no row. Faults of the
connection, time-outs, read-only servers and the like become `StoreUnavailable`: whether a COMMIT took effect is then
not known, and every operation of this package may be repeated. Lock order everywhere: pod (cordon) → claim → task →
user → queue; a counter's row comes last.

The operations live in the modules beside: registration, claiming, writing, submissions, recovery, overview, generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Self

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from slackwater.errors import StoreUnavailable
from slackwater.settings import Constants
from slackwater.store.url import driver_url

__all__ = ["TIMELINE", "Store"]

TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
"""SQL: the timeline this server writes; a promoted standby has another one."""

_NO_ANSWER = (OperationalError, InterfaceError, InternalError)
_NOT_MIGRATED = {"3F000", "42P01", "42703"}


class Store:
    """Connections to one database and the constants that its statements use. Share one per event loop."""

    def __init__(self, engine: AsyncEngine, constants: Constants) -> None:
        """`engine` must be in AUTOCOMMIT: transactions are opened and closed here, by hand."""
        self._engine = engine
        self.constants = constants
        c = constants
        self._opening = (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
            f"SET LOCAL statement_timeout = {_ms(c.statement_timeout_seconds)};"
            f"SET LOCAL lock_timeout = {_ms(c.lock_timeout_seconds)};"
            f"SET LOCAL idle_in_transaction_session_timeout = {_ms(c.idle_timeout_seconds)};"
        )
        # A server that is cut off answers nothing, not even a time-out.
        self._deadline = 2 * c.statement_timeout_seconds + c.lock_timeout_seconds

    @classmethod
    def connect(cls, url: str, *, constants: Constants | None = None, pool_size: int = 5) -> Self:
        """A store on `url`; connects at first use. `pool_size` connections at most."""
        constants = constants or Constants()
        engine = create_async_engine(
            driver_url(url),
            isolation_level="AUTOCOMMIT",
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=constants.claim_timeout_seconds,
            pool_pre_ping=False,
            hide_parameters=True,  # they hold payloads, and errors end in logs
            connect_args={
                "prepare_threshold": None,
                "connect_timeout": max(2, round(constants.claim_timeout_seconds)),
                "application_name": "slackwater",
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": _ms(constants.idle_timeout_seconds),
            },
        )
        return cls(engine, constants)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self, *statements: str, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
        """One transaction: commits at the end, rolls back on any error.

        `statements` (constant SQL) run with the opening, in its round trip. `seconds` bounds the whole on this side.
        Raises StoreUnavailable when there was no answer; after that nobody knows whether a COMMIT took effect.
        """
        with _answers():
            try:
                async with asyncio.timeout(seconds or self._deadline) as limit, self._engine.connect() as connection:
                    await connection.exec_driver_sql(self._opening + ";".join(statements))
                    yield connection
                    await _commit(connection)
            except TimeoutError as error:
                if limit.expired():
                    raise StoreUnavailable("no answer from the database in time") from error
                raise

    async def now(self) -> datetime:
        """The database's clock."""
        async with self.transaction() as connection:
            now: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
        return now

    async def timeline(self) -> str:
        """The timeline that the server writes (8 hex digits); another one than before means a failover."""
        async with self.transaction() as connection:
            return str((await connection.execute(text(f"SELECT {TIMELINE}"))).scalar_one())


async def _commit(connection: AsyncConnection) -> None:
    """COMMIT; of a transaction that failed it would quietly be a ROLLBACK, so that one raises."""
    driver = (await connection.get_raw_connection()).driver_connection
    if not isinstance(driver, psycopg.AsyncConnection):
        raise TypeError("the store needs psycopg")
    if driver.info.transaction_status is not TransactionStatus.INTRANS:
        raise StoreUnavailable("the transaction had failed before its commit")
    await connection.commit()


@contextmanager
def _answers() -> Iterator[None]:
    """Turn whatever is no answer into StoreUnavailable; faults of our own SQL pass as they are."""
    try:
        yield
    except (PoolTimeout, PendingRollbackError, OSError) as error:
        raise StoreUnavailable(f"no connection to the database: {type(error).__name__}") from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if isinstance(error, _NO_ANSWER) or state in _NOT_MIGRATED or error.connection_invalidated:
            raise StoreUnavailable(f"no answer from the database: {error.orig}") from error
        raise


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
