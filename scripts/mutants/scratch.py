"""A copy of the working tree in which mutants live. Rule: the repository itself is never touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from scripts.mutants.table import Guard
from scripts.mutants.witness import REPORT

ROOT = Path(__file__).parents[2]
TEST_SECONDS = 60
RUN_SECONDS = 150


class End(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "broken"


@dataclass(frozen=True)
class Verdict:
    end: End
    seconds: float
    why: str = ""


class Scratch:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = path / "tree"
        self._stamp = int(time.time())
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self._tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self._tree / name)

    def mutate(self, guard: Guard) -> Verdict:
        """Raises Rotten."""
        file = self._tree / guard.file
        text = file.read_text()
        self._write(file, guard.mutate(text))
        try:
            return self.run(guard.tests)
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        """Under a time of its own: else a mutant of the same second and size would run its predecessor's bytecode."""
        file.write_text(text)
        self._stamp += 1
        os.utime(file, (self._stamp, self._stamp))

    def run(self, tests: Sequence[str]) -> Verdict:
        """Caught: a test failed. Survived: all passed. Broken: anything else, and why."""
        report = self._path / "report"
        report.write_text("")
        started = time.monotonic()
        code, said = self._pytest(tests, report)
        seconds = time.monotonic() - started
        notes = [json.loads(line) for line in report.read_text().splitlines()]
        failures = [n for n in notes if n["kind"] == "failure"]
        errors = [n for n in notes if n["kind"] == "error"]
        if code == 0 and not errors:
            return Verdict(End.SURVIVED, seconds)
        if code == 1 and failures:
            return Verdict(End.CAUGHT, seconds, f"{failures[0]['where']}: {failures[0]['words']}")
        if code is None:
            return Verdict(End.BROKEN, seconds, f"no end within {RUN_SECONDS} s")
        why = f"{errors[0]['where']}: {errors[0]['words']}" if errors else said
        return Verdict(End.BROKEN, seconds, why)

    def _pytest(self, tests: Sequence[str], report: Path) -> tuple[int | None, str]:
        tree = self._tree
        more = [str(tree / "operator"), str(tree / "worker"), str(tree)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(more), REPORT: str(report)}
        options = ["-x", "-q", "--no-header", "--tb=short", f"--timeout={TEST_SECONDS}", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, "-p", "scripts.mutants.witness", "--hypothesis-seed=0", *tests],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end(process)
        last = [line for line in output.splitlines() if line.strip()][-1:]
        return process.returncode, f"exit code {process.returncode}: {''.join(last)}"


def _end(process: subprocess.Popen[str]) -> None:
    """With all it started; its servers get a chance to leave in order, and what a hung test forked is not left."""
    if process.poll() is None:
        _signal(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[str], how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)


@contextlib.contextmanager
def scratch() -> Iterator[Scratch]:
    with tempfile.TemporaryDirectory(prefix="mutants", ignore_cleanup_errors=True) as path:
        yield Scratch(Path(path).resolve())
