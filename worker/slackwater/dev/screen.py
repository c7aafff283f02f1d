"""What `slackwater dev` says. Rule: one line per thing that happened, short enough to read while it happens.

Steps carry the seconds since the command; a child's JSON line is shown as its message and the fields that matter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

Line = dict[str, Any]
_HIDDEN = frozenset({"message", "level", "logger", "timestamp", "worker", "pid", "revision", "pod", "trace", "user"})
_QUIET = frozenset({"standing", "slots restored", "leaving", "started", "claiming goes on", "request"})
_QUIET_AT_START = frozenset({"not registered yet", "no sweep", "slots are lost (missing)", "claiming pauses"})
"""What a fresh installation says once: its tables are being made, and its slots' generation is made by who asks first.
"""


class Screen:
    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._began = clock()
        self.starting = True
        """Until the first worker serves."""

    def step(self, text: str) -> None:
        self._write(f"{self._clock() - self._began:5.1f} s  {text}")

    def block(self, text: str) -> None:
        for line in text.splitlines():
            self._write(f"         {line}".rstrip())

    def child(self, name: str, text: str) -> Line:
        """Show a line that a child wrote; returns it parsed, empty if it was no JSON object."""
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            self._write(f"{name:>7}  {text}")
            return {}
        if self.starting and line.get("message") in _QUIET_AT_START:
            return line
        if shown := render(line):
            self._write(f"{name:>7}  {shown}")
        return line


def render(line: Line) -> str:
    """One log line for people; '' for what is of no use while writing tasks."""
    message = str(line.get("message", ""))
    level = str(line.get("level", "info"))
    if level in ("debug", "info") and (str(line.get("logger")).startswith("uvicorn") or _of_no_use(line)):
        return ""
    fields = " ".join(f"{key}={_short(value)}" for key, value in line.items() if key not in _HIDDEN)
    loud = "" if level in ("debug", "info") else f"{level}: "
    traceback = str(line.get("traceback", ""))
    if traceback:
        fields = " ".join(f"{key}={_short(value)}" for key, value in line.items() if key not in _HIDDEN | {"traceback"})
        return f"{loud}{message}  {fields}\n{traceback.rstrip()}"
    return f"{loud}{message}  {fields}".rstrip()


def _of_no_use(line: Line) -> bool:
    return line.get("message") in _QUIET and "task" not in line


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
