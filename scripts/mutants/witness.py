"""A pytest plugin that says how a test failed. Rule: a crash of the mutant itself is no proof that a guard is held."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

REPORT = "MUTANTS_REPORT"
_CRASHES = (SyntaxError, ImportError, NameError, AttributeError, TypeError)
_CRASHES_BY_NAME = {"ProgrammingError", "ResponseError", "FlakyFailure", "Flaky", "Unsatisfiable"}


def _note(kind: str, where: str, words: str) -> None:
    with Path(os.environ[REPORT]).open("a") as report:
        report.write(json.dumps({"kind": kind, "where": where, "words": words.splitlines()[0][:200] if words else ""}))
        report.write("\n")


def _crash(error: BaseException | None) -> BaseException | None:
    """The mutant's own crash behind an exception: no Python, no SQL, no Lua any more."""
    while error is not None:
        if isinstance(error, _CRASHES) or type(error).__name__ in _CRASHES_BY_NAME:
            return error
        if isinstance(error, BaseExceptionGroup):
            return next(filter(None, map(_crash, error.exceptions)), None)
        if "ResponseError" in str(error):  # a script that Redis refused, told as no answer
            return error
        error = error.__cause__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        error = call.excinfo.value
        words = f"{type(error).__name__}: {error}"
        crash = _crash(error)
        if report.when != "call":
            _note("error", item.nodeid, f"in {report.when}: {words}")
        elif crash is not None:
            _note("error", item.nodeid, f"{type(crash).__name__}: {crash}")
        elif words.startswith("Failed: Timeout"):
            _note("error", item.nodeid, "the test hung")
        else:
            _note("failure", item.nodeid, words)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _note("error", report.nodeid, "could not be collected")


def pytest_sessionfinish() -> None:
    for name in ("slackwater", "slackwater_operator"):
        module = sys.modules.get(name)
        if module is not None and not (module.__file__ or "").startswith(str(Path.cwd())):
            _note("error", name, "the tests ran against another copy")
