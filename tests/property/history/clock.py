"""Time that passes without waiting. Rule: the product's own statements and scripts run unchanged; only the clock moves.

PostgreSQL: the database's search path puts a schema before `pg_catalog` in which `clock_timestamp()` and
`statement_timestamp()` are the real ones plus a shift, so every statement (and every column's default) reads shifted
time, and whatever somebody remembers stays right. Redis: a script can't be given another TIME, so what is stored there
(scores, the marker, keys' ends) moves into the past by as much. Processes: `monotonic`, plus the same shift.
"""

from __future__ import annotations

import time

import psycopg
from redis.asyncio import Redis

_SCHEMA = """
    CREATE SCHEMA shifted;
    CREATE TABLE shifted.clock (shift interval NOT NULL);
    INSERT INTO shifted.clock VALUES ('0');
    CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
        $$BEGIN RETURN pg_catalog.clock_timestamp() + (SELECT shift FROM shifted.clock); END$$;
    CREATE FUNCTION shifted.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
        $$BEGIN RETURN pg_catalog.statement_timestamp() + (SELECT shift FROM shifted.clock); END$$;
    ALTER DATABASE postgres SET search_path = shifted, pg_catalog, public;
"""
_SHIFT = "UPDATE shifted.clock SET shift = shift + make_interval(secs => %s)"
_REDIS = """
    local by = tonumber(ARGV[1])
    for _, key in ipairs(redis.call('KEYS', '*')) do
        if redis.call('TYPE', key).ok == 'zset' then
            local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
            for i = 1, #members, 2 do
                redis.call('ZADD', key, string.format('%.0f', members[i + 1] - by), members[i])
            end
        else
            local touched = redis.call('HGET', key, 'touched')
            if touched then redis.call('HSET', key, 'touched', string.format('%.0f', touched - by)) end
        end
        local left = redis.call('PTTL', key)
        if left >= 0 then redis.call('PEXPIRE', key, math.max(left - by, 0)) end
    end
"""


def install(url: str) -> None:
    """On a fresh database, before it is migrated."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SCHEMA)


class Clock:
    """The three clocks of one history."""

    def __init__(self, postgres: psycopg.AsyncConnection[psycopg.rows.TupleRow], redis: Redis) -> None:
        self._postgres = postgres
        self._redis = redis
        self._shift = 0.0
        self.redis_shift_ms = 0
        """What has to be added to a Redis time so that it can be compared with one from before a shift."""

    def monotonic(self) -> float:
        return time.monotonic() + self._shift

    async def passes(self, seconds: float) -> None:
        """For everybody alike."""
        self._shift += seconds
        await self.database_steps(seconds)
        await self.redis_steps(seconds)

    async def database_steps(self, seconds: float) -> None:
        await self._postgres.execute(_SHIFT, (seconds,))

    async def redis_steps(self, seconds: float) -> None:
        """Also alone: Redis's clock was set, or another server with another clock answers."""
        by = round(seconds * 1000)
        self.redis_shift_ms += by
        await self._redis.eval(_REDIS, 0, by)
