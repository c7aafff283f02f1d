"""Commands of upkeep: prune, adopt, late outcomes, webhooks and deliveries. What they print, and their exit codes."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest

from slackwater.cli.exits import Exit
from tests.integration.test_cli import Run, emptied, enqueued, run

__all__ = ["emptied", "run"]


def answer(run: Run, *arguments: str) -> object:
    code, out, err = run("-o", "json", *arguments)
    assert code == Exit.OK, err
    return json.loads(out)


def make_unknown(url: str, task: str) -> str:
    """As a cancel leaves it whose provider has not answered; returns the open submission's key."""
    key = f"key-{uuid4()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE slackwater.claim SET state = 'unknown' WHERE task_id = %s", [task])
        connection.execute(
            "INSERT INTO slackwater.submission (task_id, name, n, key, provider, request, epoch)"
            " VALUES (%s, 'frame', 1, %s, 'stub', '{}', 1)",
            [task, key],
        )
    return key


def test_an_unknown_task_is_adopted_once_with_the_outcome_that_came_late(run: Run, emptied: str) -> None:
    task = enqueued(run)
    assert run("task", "adopt", task, '{"url": 1}')[0] == Exit.CONFLICT
    key = make_unknown(emptied, task)
    assert run("task", "adopt", task)[0] == Exit.USAGE, "there is no result to adopt"
    recorded = answer(run, "task", "outcome", key, '{"url": "late"}')
    assert isinstance(recorded, dict)
    assert recorded["outcome"] == {"url": "late"}
    assert answer(run, "task", "adopt", task, "--reason", "came late") == {"id": task, "state": "done"}
    shown = answer(run, "task", "show", task)
    assert isinstance(shown, dict)
    assert shown["result"] == {"url": "late"}
    assert run("task", "adopt", task)[0] == Exit.CONFLICT
    assert run("task", "adopt", str(uuid4()), "1")[0] == Exit.NOT_FOUND
    assert run("task", "outcome", "no-such-key", "1")[0] == Exit.NOT_FOUND


def test_prune_says_how_many_and_takes_its_ages_from_options_and_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = enqueued(run)
    assert answer(run, "task", "cancel", task)
    nothing = answer(run, "prune")
    assert isinstance(nothing, dict)
    assert set(nothing.values()) == {0}
    pruned = answer(run, "prune", "--audit-days", "0", "--events-hours", "0")
    assert isinstance(pruned, dict)
    assert (pruned["audit"], pruned["tasks"]) == (1, 0)
    monkeypatch.setenv("SLACKWATER_KEEP_TASKS_DAYS", "nonsense")
    code, _, err = run("prune")
    assert code == Exit.USAGE
    assert "SLACKWATER_KEEP_TASKS_DAYS" in err


def test_a_webhook_s_secret_is_printed_once_and_a_delivery_is_sent_again(run: Run, emptied: str) -> None:
    made = answer(run, "webhook", "put", "shop", "https://example.com/in", "--kind", "done")
    assert isinstance(made, dict)
    assert made["secret"].startswith("swsec_")
    assert answer(run, "webhook", "put", "shop", "https://example.com/in") == {"name": "shop"}
    assert made["secret"] not in run("webhook", "list")[1]
    enqueued(run)
    with psycopg.connect(emptied, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.delivery (webhook, outbox_id, task_id, seq, dead_at)"
            " SELECT 'shop', id, task_id, seq, clock_timestamp() FROM slackwater.outbox"
        )
    listed = answer(run, "outbox", "list", "--state", "dead")
    assert isinstance(listed, list)
    (dead,) = listed
    sent = answer(run, "outbox", "redeliver", "shop", str(dead["id"]))
    assert sent == {"webhook": "shop", "id": dead["id"], "state": "open"}
    assert answer(run, "outbox", "list", "--state", "dead") == []
    assert run("outbox", "redeliver", "shop", "999999")[0] == Exit.NOT_FOUND
    assert run("webhook", "put", "shop", "ftp://example.com")[0] == Exit.USAGE
    assert run("webhook", "rotate", "none")[0] == Exit.NOT_FOUND
    assert answer(run, "webhook", "remove", "shop") == {"name": "shop", "removed": True}
