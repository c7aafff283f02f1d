"""What the doctor's figures mean, and what commands print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slackwater.cli import verdicts
from slackwater.cli.main import _output_first
from slackwater.cli.output import Format, Output
from slackwater.cli.verdicts import Finding, Verdict
from slackwater.policy import Policy

SERVER = {
    "version": 180000,
    "standby": False,
    "read_only": "off",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": 100,
}
INFO = {"role": "master", "redis_version": "7.2.4", "redis_mode": "standalone"}


def wrong(findings: list[Finding]) -> list[str]:
    assert all(finding.mend for finding in findings if finding.verdict is not Verdict.OK)
    return [finding.check for finding in findings if finding.wrong]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({}, []),
        ({"version": 140011}, ["postgres version"]),
        ({"version": 150000}, []),
        ({"standby": True}, ["postgres primary"]),
        ({"read_only": "on"}, ["postgres primary"]),
        ({"fsync": "off"}, ["postgres durability"]),
        ({"synchronous_commit": "off"}, ["postgres durability"]),
        ({"synchronous_commit": "remote_apply"}, []),
        ({"max_connections": 20}, []),
    ],
)
def test_postgres(change: dict[str, Any], check: list[str]) -> None:
    assert wrong(verdicts.server({**SERVER, **change})) == check


def test_few_connections_are_a_warning() -> None:
    found = verdicts.server({**SERVER, "max_connections": 20})
    assert [f.check for f in found if f.verdict is Verdict.WARNING] == ["postgres connections"]


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        ({}, True),
        ({"redis_version": "6.2.14"}, False),
        ({"server_name": "valkey", "valkey_version": "9.0.1"}, True),
        ({"role": "slave"}, False),
        ({"redis_mode": "cluster"}, False),
    ],
)
def test_redis(change: dict[str, Any], ok: bool) -> None:
    assert verdicts.redis_server({**INFO, **change}).wrong is not ok


@pytest.mark.parametrize(
    ("found", "ok"), [("noeviction", True), (b"noeviction", True), ("allkeys-lru", False), (None, False)]
)
def test_eviction(found: object, ok: bool) -> None:
    assert verdicts.eviction(found).wrong is not ok


@pytest.mark.parametrize(
    ("theirs", "ok"), [(100.0, True), (100.05, True), (104.9, True), (106.2, False), (94.0, False), (95.5, True)]
)
def test_a_clock_is_judged_by_what_cannot_be_the_journey(theirs: float, ok: bool) -> None:
    assert verdicts.clock("postgres", theirs, 100.0, 100.1).wrong is not ok


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("", Verdict.WRONG), ("0001", Verdict.WRONG), ("0002", Verdict.OK), ("0003", Verdict.WARNING)],
)
def test_tables(version: str, verdict: Verdict) -> None:
    assert verdicts.migrated(version, "0002").verdict is verdict


@pytest.mark.parametrize(("document", "ok"), [(Policy().document(), True), (None, False), ({}, False), ([], False)])
def test_policy(document: object, ok: bool) -> None:
    assert verdicts.policy(document).wrong is not ok


def test_denied_rights_are_named_a_few_at_a_time() -> None:
    assert not verdicts.permissions([]).wrong
    found = verdicts.permissions([f"t{i}" for i in range(8)])
    assert found.wrong
    assert "t0, t1, t2, t3, t4 and 3 more" in found.found


@pytest.mark.parametrize("direct", [True, False])
def test_lost_notifications_name_the_right_setting(direct: bool) -> None:
    found = verdicts.listening("no notification arrived", direct=direct)
    assert found.wrong
    assert "DATABASE_DIRECT_URL" in found.mend


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["task", "list", "-o", "json"], ["-o", "json", "task", "list"]),
        (["--output=json", "task", "list"], ["--output=json", "task", "list"]),
        (["enqueue", "x", "--", "-o"], ["enqueue", "x", "--", "-o"]),
        (["task", "list", "-o"], ["-o", "task", "list"]),
    ],
)
def test_the_format_may_stand_anywhere(arguments: list[str], expected: list[str]) -> None:
    assert _output_first(arguments) == expected


ROWS = [{"id": "a", "note": "two\tparts\nhere\x1b[31m", "none": None}]


def test_lines_in_a_pipe_have_one_cell_per_column(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.AUTO).rows(("id", "note", "none"), ROWS)
    assert capsys.readouterr().out == "a\ttwo parts here [31m\t-\n"


def test_json_has_everything_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.JSON).rows(("id",), ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS


def test_a_table_takes_nothing_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.TABLE).rows(("note",), [{"note": "[red]x[/red]"}])
    assert "[red]x[/red]" in capsys.readouterr().out
