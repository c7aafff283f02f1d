"""The judge: what the paid provider's own log says happened.

Rule: pure functions over the log; no table of ours is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.kit.forward import Reach


@dataclass(frozen=True)
class Run:
    """One execution as the provider saw it: a task, an epoch and the worker that ran it."""

    task: str
    epoch: int
    worker: str


@dataclass(frozen=True)
class Verdict:
    """What the log proves. `interrupted`: executions that started and never ended, by their own account."""

    runs: tuple[Run, ...]
    started_at: dict[Run, float]
    """By the provider's clock, seconds since 1970."""
    interrupted: tuple[Run, ...]
    ends_by_task: dict[str, int]
    charges_by_key: dict[str, int]
    tasks: frozenset[str] = field(default_factory=frozenset)

    @property
    def paid_twice(self) -> list[str]:
        return [key for key, n in self.charges_by_key.items() if n > 1]

    @property
    def ended_twice(self) -> list[str]:
        return [task for task, n in self.ends_by_task.items() if n > 1]


def judge(log: Iterable[dict[str, Any]]) -> Verdict:
    """`log`: entries {what: start|end|submit|poll, task, epoch, worker, key?, charged?} in the order of arrival."""
    started: dict[Run, float] = {}
    ended: set[Run] = set()
    ends: Counter[str] = Counter()
    charges: Counter[str] = Counter()
    for entry in log:
        run = Run(entry["task"], int(entry["epoch"]), entry["worker"])
        match entry["what"]:
            case "start":
                started.setdefault(run, float(entry.get("at", 0)))
            case "end":
                ended.add(run)
                ends[run.task] += 1
            case "submit" if entry.get("charged"):
                charges[entry["key"]] += 1
    interrupted = tuple(r for r in started if r not in ended)
    return Verdict(tuple(started), started, interrupted, dict(ends), dict(charges), frozenset(r.task for r in started))


class Provider:
    """The stub's log over HTTP."""

    def __init__(self, reach: Reach, service: str = "provider") -> None:
        self._reach, self._service = reach, service

    def log(self) -> list[dict[str, Any]]:
        host, port = self._reach.address(self._service)
        answer = httpx.get(f"http://{host}:{port}/log", timeout=10, trust_env=False)
        answer.raise_for_status()
        entries: list[dict[str, Any]] = answer.json()
        return entries

    def verdict(self) -> Verdict:
        return judge(self.log())
