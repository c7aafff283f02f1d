"""A provider that charges, and judges what it is asked: one key per submission, nothing new while an older is open."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID


class Refused(Exception):
    """Nothing was created."""


@dataclass
class Job:
    task_id: UUID
    name: str
    n: int
    key: str
    request: Any
    reference: str
    outcome: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and not self.outcome["ok"]


class Provider:
    """Idempotent by key. Jobs end when the adversary says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.charges: Counter[tuple[UUID, str, int]] = Counter()

    def call(self, task_id: UUID, name: str, n: int, key: str, request: Any) -> str:
        if key in self.jobs:
            job = self.jobs[key]
            assert (job.task_id, job.name, job.n) == (task_id, name, n), f"key {key} stands for two submissions"
            assert job.request == request, f"another request under the key of submission {n}"
            return job.reference
        for job in self.jobs.values():
            if (job.task_id, job.name) == (task_id, name):
                assert job.n != n, f"submission {n} of task {task_id} is asked for under two keys"
                assert job.n > n or job.failed, f"submission {n} of task {task_id} while {job.n} is unresolved"
        reference = f"job-{len(self.jobs) + 1}"
        self.jobs[key] = Job(task_id, name, n, key, request, reference)
        return reference

    def end(self, key: str, *, ok: bool) -> None:
        job = self.jobs[key]
        if job.outcome is None:
            job.outcome = {"ok": ok, "reference": job.reference}
            if ok:
                self.charges[job.task_id, job.name, job.n] += 1
                assert self.charges[job.task_id, job.name, job.n] == 1, f"submission {job.n} charged twice"
