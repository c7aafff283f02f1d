"""A worker's settings are judged before it connects to anything, and a fault names its setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater import start
from slackwater.errors import SettingsError
from slackwater.task import Registry

GOOD = {
    "DATABASE_URL": "postgresql://me:secret@db/slackwater",
    "REDIS_URL": "redis://redis/0",
    "SLACKWATER_TASKS": "samples.render.tasks, samples.render.faults",
    "SLACKWATER_QUEUES": "default, slow",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(start, "configure", lambda **_settings: None)  # the test run's logging stays as it is
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_good_settings_are_read_with_their_lists(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("SLACKWATER_RUN_DIR", str(tmp_path))
    prepared = start.prepare()
    assert prepared.settings.queues == ("default", "slow")
    assert {"render", "nap", "poison"} <= set(prepared.registry.names)
    assert prepared.lock is not None
    assert prepared.lock.try_take()
    second = start.prepare().lock
    assert second is not None
    assert not second.try_take()


def test_modules_that_declare_no_task_are_a_fault(environment: pytest.MonkeyPatch) -> None:
    environment.setattr("slackwater.task.REGISTRY", Registry())
    environment.setenv("SLACKWATER_TASKS", "slackwater.errors")
    with pytest.raises(SettingsError, match="SLACKWATER_TASKS: no task is declared"):
        start.prepare()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("SLACKWATER_RENEW_SECONDS", "20"),
        ("SLACKWATER_TASKS", "no.such.module"),
        ("SLACKWATER_TASKS", " , "),
        ("SLACKWATER_CONCURRENCY", "0"),
        ("DATABASE_URL", "mysql://x"),
        ("DATABASE_DIRECT_URL", "mysql://x"),
        ("REDIS_URL", "http://x"),
        ("SLACKWATER_RUN_DIR", "/nowhere/at/all"),
    ],
)
def test_a_fault_names_its_setting(environment: pytest.MonkeyPatch, setting: str, value: str) -> None:
    environment.setenv(setting, value)
    with pytest.raises(SettingsError) as caught:
        start.prepare()
    assert caught.value.exit_code == 2
    # Both URLs are read by one rule, which speaks of the database.
    assert str(caught.value).startswith(setting.replace("_DIRECT", "") if "DATABASE" in setting else setting)
