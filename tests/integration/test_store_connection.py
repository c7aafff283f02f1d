"""The store's connections: time-outs hold, no answer is never taken for a refusal, a frozen process holds no row."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, ProgrammingError

from slackwater import migrations
from slackwater.errors import StoreUnavailable
from slackwater.policy import Policy
from slackwater.settings import Constants
from slackwater.store import Store
from slackwater.store.policies import policy_cache, read_policy, write_policy
from tests.integration.servers import Postgres
from tests.integration.world import World


class TestImpatient:
    @pytest.fixture
    def constants(self) -> Constants:
        return Constants(statement_timeout_seconds=0.1, lock_timeout_seconds=0.05, idle_timeout_seconds=0.1)

    async def test_a_slow_statement_is_cut_by_the_server(self, store: Store) -> None:
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            # our own deadline far away: on a loaded machine it must not be the first to cut
            async with store.transaction(seconds=30) as connection:
                await connection.execute(text("SELECT pg_sleep(5)"))

    async def test_a_process_that_froze_inside_a_transaction_holds_no_row(self, world: World) -> None:
        task_id = await world.task()

        async def freeze() -> None:
            async with world.store.transaction(seconds=30) as connection:
                await connection.execute(
                    text("SELECT FROM slackwater.claim WHERE task_id = :id FOR UPDATE"), {"id": task_id}
                )
                await world.sql("SELECT pg_sleep(0.3)")
                await world.sql("SELECT FROM slackwater.claim WHERE task_id = %(id)s FOR UPDATE NOWAIT", id=task_id)
                await connection.execute(text("SELECT 1"))

        with pytest.raises(StoreUnavailable):
            await freeze()

    async def test_the_settings_end_with_the_transaction(self, store: Store) -> None:
        async with store.transaction() as connection:
            inside = (await connection.execute(text("SHOW lock_timeout"))).scalar_one()
        async with store._engine.connect() as connection:
            outside = (await connection.execute(text("SHOW lock_timeout"))).scalar_one()

        assert (inside, outside) == ("50ms", "0")


async def test_transactions_are_read_committed_whatever_the_database_defaults_to(world: World) -> None:
    await world.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    try:
        fresh = Store.connect(world.url)
        async with fresh.transaction() as connection:
            level = (await connection.execute(text("SHOW transaction_isolation"))).scalar_one()
        await fresh.close()
    finally:
        await world.sql("ALTER DATABASE postgres RESET default_transaction_isolation")

    assert level == "read committed"


async def test_an_error_in_the_middle_rolls_everything_back(world: World) -> None:
    async def fail() -> None:
        async with world.store.transaction() as connection:
            await connection.execute(text("INSERT INTO slackwater.queue (name) VALUES ('half')"))
            raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        await fail()
    assert await world.sql("SELECT name FROM slackwater.queue") == []


async def test_a_failed_statement_that_somebody_swallowed_is_no_quiet_rollback(store: Store) -> None:
    async def swallow() -> None:
        async with store.transaction() as connection:
            with pytest.raises(ProgrammingError):
                await connection.execute(text("SELECT nonsense FROM nowhere()"))

    with pytest.raises(StoreUnavailable, match="had failed"):
        await swallow()


async def test_faults_of_our_own_are_not_dressed_up_as_no_answer(store: Store) -> None:
    with pytest.raises(IntegrityError):
        async with store.transaction() as connection:
            await connection.execute(text("INSERT INTO slackwater.policy (id, document) VALUES (2, '{}')"))


async def test_cancelling_a_caller_leaves_no_transaction_behind(world: World) -> None:
    task_id = await world.task()

    async def hang() -> None:
        async with world.store.transaction() as connection:
            await connection.execute(
                text("SELECT FROM slackwater.claim WHERE task_id = :id FOR UPDATE"), {"id": task_id}
            )
            held.set()
            await asyncio.Event().wait()

    held = asyncio.Event()
    hanging = asyncio.create_task(hang())
    await held.wait()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)

    await world.sql("SELECT FROM slackwater.claim WHERE task_id = %(id)s FOR UPDATE", id=task_id)


class TestStopped:
    @pytest.fixture
    def server(self) -> Iterator[Postgres]:
        directory = Path(tempfile.mkdtemp(prefix="swpg"))
        server = Postgres(directory)
        server.start()
        yield server
        server.stop()
        shutil.rmtree(directory)

    async def test_a_server_that_crashed_gives_no_answer_and_the_store_comes_back_with_it(
        self, server: Postgres
    ) -> None:
        migrations.upgrade(server.url())
        store = Store.connect(server.url())
        timeline = await store.timeline()
        server.stop()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.now()
        server.start()

        with_answers = 0
        for _ in range(5):  # connections of before the crash fail once each
            try:
                with_answers += await store.timeline() == timeline
            except StoreUnavailable:
                continue
        assert with_answers >= 3
        await store.close()


async def test_an_unreadable_policy_is_an_error_and_never_a_default(world: World) -> None:
    cache = policy_cache(world.store)
    assert (await cache.get()).user_pending_limit == 3
    cache.drop()

    for broken in ("{}", "[]", '{"user_pending_limit": -1}', '{"user_pending_limit": "many"}'):
        await world.sql("UPDATE slackwater.policy SET document = CAST(%(document)s AS jsonb)", document=broken)
        with pytest.raises(StoreUnavailable):
            await read_policy(world.store)
    await world.sql("DELETE FROM slackwater.policy")
    with pytest.raises(StoreUnavailable):
        await cache.get()


async def test_a_saved_policy_is_read_back_and_audited(world: World) -> None:
    policy = Policy(worker_concurrency=9, channels={"c": 2}, users={"u": 1}, weights={"u": 2.5}, pools={"p": 3})

    await write_policy(world.store, policy, who="admin")

    assert await read_policy(world.store) == policy
    assert (await world.one("SELECT who, action FROM slackwater.audit")) == {"who": "admin", "action": "policy"}
