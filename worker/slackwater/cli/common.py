"""What commands share: the store of the environment, the loop, arguments that mean a task."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.cli.exits import NotFound
from slackwater.cli.output import Format, Output
from slackwater.errors import InvalidInput
from slackwater.settings import Constants, load

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from slackwater.store import Store

T = TypeVar("T")


class DatabaseSettings(BaseSettings):
    """For commands that need Postgres alone."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    database_url: SecretStr = Field(validation_alias="DATABASE_URL")


class RedisSettings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    redis_url: SecretStr = Field(validation_alias="REDIS_URL")
    slot_prefix: str = Field(default="slackwater:slots", validation_alias="SLACKWATER_SLOT_PREFIX")


def database_url() -> str:
    return load(DatabaseSettings).database_url.get_secret_value()


@asynccontextmanager
async def opened_store() -> AsyncIterator[Store]:
    from slackwater.store import Store

    store = Store.connect(database_url(), constants=load(Constants), pool_size=2)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_redis() -> AsyncIterator[Redis]:
    from slackwater.redis_client import redis_client

    client = redis_client(load(RedisSettings).redis_url.get_secret_value(), load(Constants))
    try:
        yield client
    finally:
        await client.aclose()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def who() -> str:
    """For the audit record: who typed the command."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


def task_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput("task id", None, f"{text[:40]!r} is none") from None


def found(value: T | None, what: str) -> T:
    if value is None:
        raise NotFound(f"there is no {what}")
    return value


def output_of(context: typer.Context) -> Output:
    chosen: Format = context.obj or Format.AUTO
    return Output(chosen)


TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.")]
