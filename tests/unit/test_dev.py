"""`slackwater dev`, the parts that need no servers: what counts as a change, and what is shown of a log."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from slackwater.dev.place import free_port, opened
from slackwater.dev.screen import Screen
from slackwater.dev.watching import Watch, look, roots
from slackwater.errors import InvalidInput


def save(path: Path, text: str, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(at, at))


def test_a_package_is_watched_to_its_last_module_and_a_file_with_its_neighbours(tmp_path: Path) -> None:
    save(tmp_path / "shop" / "__init__.py", "", 1)
    save(tmp_path / "shop" / "deep" / "tasks.py", "", 1)
    save(tmp_path / "shop" / "__pycache__" / "tasks.py", "", 1)
    save(tmp_path / "shop" / ".venv" / "lib.py", "", 1)
    save(tmp_path / "alone.py", "", 1)
    save(tmp_path / "helper.py", "", 1)
    seen = look(roots(["shop.deep.tasks"], [str(tmp_path)]))
    assert {path.name for path in seen} == {"__init__.py", "tasks.py"}
    assert {path.parent.name for path in seen} == {"shop", "deep"}
    seen = look(roots(["alone"], [str(tmp_path)]))
    assert {path.name for path in seen} == {"alone.py", "helper.py"}
    assert roots(["nowhere"], [str(tmp_path)]) == ()


def test_a_change_is_told_once_and_only_when_the_files_have_settled(tmp_path: Path) -> None:
    module = tmp_path / "alone.py"
    save(module, "a", 1)
    watch = Watch(roots(["alone"], [str(tmp_path)]))
    assert watch.changes() == []
    save(module, "b", 2)
    assert watch.changes() == []  # it may still be going on
    save(module, "c", 3)
    assert watch.changes() == []
    assert watch.changes() == [module]
    assert watch.changes() == []
    module.unlink()
    watch.changes()
    assert watch.changes() == [module]


def test_a_log_line_is_shown_as_its_message_and_what_matters() -> None:
    shown: list[str] = []
    screen = Screen(shown.append, clock=lambda: 0.0)
    line = screen.child("worker", json.dumps({"message": "done", "level": "info", "task": "t-1", "worker": "w-1"}))
    assert line["task"] == "t-1"
    screen.child("worker", json.dumps({"message": "standing", "level": "info", "reason": "idle"}))
    screen.child("worker", "Traceback: no JSON")
    screen.starting = False
    screen.child("worker", json.dumps({"message": "claiming pauses", "level": "warning", "reason": "x" * 500}))
    assert shown[0] == " worker  done  task=t-1"
    assert shown[1] == " worker  Traceback: no JSON"
    assert shown[2].startswith(" worker  warning: claiming pauses  reason=xxx")
    assert len(shown[2]) < 200
    assert len(shown) == 3


def test_a_taken_port_is_refused_if_it_was_asked_for_and_replaced_if_not() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match="--port"):
            free_port("127.0.0.1", number)
        assert free_port("127.0.0.1", None) != number


def test_nothing_is_left_of_a_temporary_place_and_a_kept_one_keeps_its_token(tmp_path: Path) -> None:
    with opened(None) as place:
        token = place.token()
        assert place.token() == token
        assert (place.data / "token").stat().st_mode & 0o077 == 0
    assert not place.sockets.exists()
    assert not place.data.exists()
    with opened(tmp_path / "kept") as first:
        token = first.token()
    with opened(tmp_path / "kept") as second:
        assert second.token() == token
