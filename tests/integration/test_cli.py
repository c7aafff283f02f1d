"""The command line on real servers: what it prints, and the code it ends with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
import redis as redis_module

from slackwater.cli import main
from slackwater.cli.exits import Exit
from slackwater.schema import metadata
from tests.integration.servers import Postgres

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def emptied(postgres_url: str) -> str:
    kept = {"slot_generation", "sweep", "timeline", "policy"}
    tables = ", ".join(str(table) for table in metadata.sorted_tables if table.name not in kept)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
        connection.execute("UPDATE slackwater.policy SET document = (SELECT document FROM public.first_policy)")
        connection.execute("UPDATE slackwater.sweep SET last = '-infinity', quiet_until = NULL")
    return postgres_url


@pytest.fixture
def run(emptied: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process: (exit code, standard output, standard error)."""
    with redis_module.Redis.from_url(redis_url) as client:
        client.flushall()
    monkeypatch.setenv("DATABASE_URL", emptied)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.delenv("DATABASE_DIRECT_URL", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["slackwater", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0, out, err)

    return call


def enqueued(run: Run, *more: str) -> str:
    code, out, _ = run("-o", "json", "enqueue", "render", '{"frame": 3}', *more)
    assert code == Exit.OK
    return str(json.loads(out)["id"])


def test_a_task_is_enqueued_shown_and_listed(run: Run) -> None:
    task_id = enqueued(run, "--user", "alice", "--priority", "2")
    code, out, _ = run("task", "show", task_id, "-o", "json")
    shown = json.loads(out)
    assert (code, shown["state"], shown["payload"], shown["user_id"]) == (0, "queued", {"frame": 3}, "alice")
    code, out, _ = run("task", "list", "--user", "alice", "--state", "queued")
    assert code == 0
    assert out.split("\t")[:4] == [task_id, "render", "default", "queued"]
    assert run("task", "list", "--user", "bob") == (0, "", "")


def test_a_repeat_with_the_key_is_told_apart(run: Run) -> None:
    first = enqueued(run, "--key", "k")
    code, out, _ = run("-o", "json", "enqueue", "render", '{"frame": 3}', "--key", "k")
    assert (code, json.loads(out)) == (0, {"id": first, "replayed": True})
    code, _, err = run("enqueue", "render", '{"frame": 4}', "--key", "k")
    assert (code, "IDEMPOTENCY_CONFLICT" in err) == (Exit.CONFLICT, True)


def test_a_full_queue_ends_with_its_code(run: Run) -> None:
    for _ in range(3):
        enqueued(run)
    code, out, err = run("enqueue", "render")
    assert (code, out) == (Exit.REFUSED, "")
    assert "USER_QUEUE_FULL" in err


def test_cancel_retry_and_finalize(run: Run) -> None:
    task_id = enqueued(run)
    assert run("task", "retry", task_id)[0] == Exit.CONFLICT
    assert run("task", "cancel", task_id)[:2] == (0, f"id\t{task_id}\nstate\tcancelled\n")
    code, _, err = run("task", "cancel", task_id)
    assert (code, "cancelled" in err) == (Exit.CONFLICT, True)
    assert run("task", "retry", task_id)[0] == 0
    code, out, _ = run("-o", "json", "task", "finalize", task_id, "--reason", "stuck")
    assert (code, json.loads(out)["state"]) == (0, "failed")


@pytest.mark.parametrize("act", ["show", "cancel", "retry", "finalize"])
def test_a_task_that_is_not_there(run: Run, act: str) -> None:
    assert run("task", act, str(uuid4()))[0] == Exit.NOT_FOUND
    assert run("task", act, "nonsense")[0] == Exit.USAGE


def test_bad_input_is_named(run: Run) -> None:
    for arguments in (["render", "{"], ["render", "--priority", "99"], ["no spaces"], ["render", "--run-at", "soon"]):
        code, _, err = run("enqueue", *arguments)
        assert code == Exit.USAGE
        assert err.startswith("slackwater: ")
    assert run("no-such-command")[0] == Exit.USAGE


def test_queues_are_paused_and_resumed(run: Run) -> None:
    enqueued(run)
    assert run("queue", "pause", "default")[0] == 0
    assert json.loads(run("-o", "json", "queue", "list")[1])[0]["paused"] is True
    assert run("queue", "resume", "default")[0] == 0
    assert json.loads(run("-o", "json", "queue", "list")[1])[0]["paused"] is False
    assert run("queue", "pause", "no-such")[0] == Exit.NOT_FOUND


def test_the_policy_is_shown_and_changed_by_field(run: Run) -> None:
    before = json.loads(run("-o", "json", "policy", "show")[1])
    assert before["user_pending_limit"] == 3
    code, out, _ = run("-o", "json", "policy", "set", '{"user_pending_limit": 5}')
    assert (code, json.loads(out)) == (0, {**before, "user_pending_limit": 5})
    assert run("policy", "set", '{"user_pending_limit": -1}')[0] == Exit.USAGE
    assert run("policy", "set", '{"typo": 1}')[0] == Exit.USAGE
    assert json.loads(run("-o", "json", "policy", "show")[1])["user_pending_limit"] == 5


def test_slots_are_shown_by_scope_with_their_age(run: Run, redis_url: str) -> None:
    with redis_module.Redis.from_url(redis_url) as client:
        now = int(float(client.time()[0]) * 1000)
        client.zadd("slackwater:slots:channel:gpu:a", {"one": now + 50_000, "two": now - 5_000})
        client.zadd("slackwater:slots:user:alice", {"one": now + 50_000})
        client.zadd("slackwater:slots-other:user:bob", {"one": now + 50_000})
        client.hset("slackwater:slots:marker", "generation", "1")
        code, out, _ = run("-o", "json", "slots")
        assert (code, json.loads(out)) == (
            0,
            [
                {"kind": "channel", "name": "gpu:a", "live": 1, "expired": 1},
                {"kind": "user", "name": "alice", "live": 1, "expired": 0},
            ],
        )
        first, second, _ = json.loads(run("-o", "json", "slots", "--holders")[1])
        assert (first["token"], second["token"]) == ("two", "one")
        assert 5 <= second["renewed_seconds_ago"] <= 15
        assert client.zcard("slackwater:slots:channel:gpu:a") == 2  # looked at, nothing else


def test_a_sweep_runs_what_is_due(run: Run) -> None:
    code, out, _ = run("-o", "json", "sweep")
    assert (code, json.loads(out)["ran"]) == (0, ["expired", "touch", "stale", "orphans"])
    assert json.loads(run("-o", "json", "sweep")[1])["ran"] == []


def test_the_doctor_finds_what_the_test_servers_lack(run: Run) -> None:
    code, out, _ = run("-o", "json", "doctor")
    findings = {finding["check"]: finding for finding in json.loads(out)}
    wrong = {name for name, finding in findings.items() if finding["verdict"] == "wrong"}
    assert (code, wrong) == (Exit.FAILED, {"postgres durability"})  # they run without fsync
    assert {"postgres", "redis", "tables", "policy", "notifications", "redis eviction", "settings"} <= set(findings)


@pytest.mark.parametrize(
    ("variable", "value", "check"),
    [
        ("DATABASE_URL", "postgresql://nobody:secret@/x?host=/nonexistent", "postgres"),
        ("DATABASE_URL", "mysql://x", "postgres"),
        ("DATABASE_URL", None, "postgres"),
        ("REDIS_URL", "unix:///nonexistent/redis.sock", "redis"),
        ("REDIS_URL", None, "redis"),
        ("DATABASE_DIRECT_URL", "postgresql://nobody:secret@/x?host=/nonexistent", "notifications"),
        ("SLACKWATER_LEASE_SECONDS", "3", "settings"),
    ],
)
def test_the_doctor_names_a_broken_setting(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str | None, check: str
) -> None:
    if value is None:
        monkeypatch.delenv(variable)
    else:
        monkeypatch.setenv(variable, value)
    code, out, _ = run("-o", "json", "doctor")
    found = next(finding for finding in json.loads(out) if finding["check"] == check)
    assert (code, found["verdict"]) == (Exit.FAILED, "wrong")
    assert found["mend"]
    assert "secret" not in out


def test_the_doctor_names_an_evicting_redis(run: Run, redis_url: str) -> None:
    with redis_module.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            _, out, _ = run("-o", "json", "doctor")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert next(f for f in json.loads(out) if f["check"] == "redis eviction")["verdict"] == "wrong"


@pytest.fixture
def database(postgres_server: Postgres, postgres_url: str) -> str:
    """An empty database beside the migrated one."""
    name = f"cli_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return postgres_server.url(name)


def test_the_doctor_names_missing_tables_and_rights(run: Run, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    monkeypatch.setenv("DATABASE_URL", database)
    findings = {f["check"]: f for f in json.loads(run("-o", "json", "doctor")[1])}
    assert (findings["tables"]["verdict"], "migrate" in findings["tables"]["mend"]) == ("wrong", True)
    assert run("migrate")[0] == 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS weak")
        connection.execute("CREATE ROLE weak LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA slackwater TO weak")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA slackwater TO weak")
    monkeypatch.setenv("DATABASE_URL", database.replace("postgres@", "weak@"))
    findings = {f["check"]: f for f in json.loads(run("-o", "json", "doctor")[1])}
    assert (findings["postgres permissions"]["verdict"], findings["tables"]["verdict"]) == ("wrong", "ok")
    assert "GRANT" in findings["postgres permissions"]["mend"]


def test_migrations_at_the_same_time_all_succeed(run: Run, database: str) -> None:
    command = [sys.executable, "-c", "from slackwater.cli import main; main()", "migrate"]
    environment = {"DATABASE_URL": database, "PATH": "/usr/bin:/bin"}

    def migrate(_: int) -> int:
        return subprocess.run(command, env=environment, timeout=60, capture_output=True, check=False).returncode

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(migrate, range(3))) == [0, 0, 0]


def test_a_migration_waits_for_the_database_until_its_deadline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@/x?host=/nonexistent")
    start = time.monotonic()
    code, _, err = run("migrate", "--wait", "0.3")
    assert (code, time.monotonic() - start < 5) == (Exit.UNAVAILABLE, True)
    assert "waiting for the database" in err
    assert "secret" not in err


def test_without_a_database_commands_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@/x?host=/nonexistent")
    code, _, err = run("task", "list")
    assert code == Exit.UNAVAILABLE
    assert "secret" not in err
    monkeypatch.setenv("REDIS_URL", "unix:///nonexistent/redis.sock")
    assert run("slots")[0] == Exit.UNAVAILABLE
    monkeypatch.delenv("DATABASE_URL")
    code, _, err = run("task", "list")
    assert (code, "DATABASE_URL" in err) == (Exit.USAGE, True)
