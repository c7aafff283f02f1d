"""Who this worker is. Rule: a random id per process start, written where a witness finds it, and one worker per pod.

The id goes to the container's termination-log file, so that the kubelet's report of an end names it (rule 9). The
lock on a file in the pod's shared directory is inherited by task processes: it is free only when the last of them is
dead.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from slackwater.claim import Identity
from slackwater.settings import PREFIX

_Names = Annotated[tuple[str, ...], NoDecode]


class WorkerSettings(BaseSettings):
    """What the operator tells a pod through its environment. Outside Kubernetes the ids are made here."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    pool_uid: str = "local"
    pool_name: str = "local"
    namespace: str = ""
    revision: str = ""
    pod_uid: str = Field(default_factory=lambda: str(uuid4()))
    pod_name: str = Field(default_factory=socket.gethostname)
    node_name: str = Field(default_factory=socket.gethostname)
    tasks: _Names
    """Modules whose `@task` functions this worker knows, separated by commas."""
    queues: _Names = ("default",)
    concurrency: int = Field(default=4, ge=1, le=1000)
    grace_seconds: float | None = Field(default=None, gt=0)
    run_dir: Path | None = None
    termination_log: Path = Path("/dev/termination-log")
    health_port: int = Field(default=8081, ge=0, le=65535)
    poll_seconds: float = Field(default=2.0, gt=0, le=60)
    """The backstop when no NOTIFY arrives."""
    ready_seconds: float = Field(default=45.0, gt=0)
    live_seconds: float = Field(default=60.0, gt=0)
    deliver: bool = False
    """Take part in the deliveries of the outbox to webhooks; for where no gateway does."""
    log_level: str = "INFO"

    @field_validator("tasks", "queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if not names:
            raise ValueError("must name at least one")
        return names


def make_identity(settings: WorkerSettings, task_types: tuple[str, ...]) -> Identity:
    return Identity(
        worker_id=f"w-{secrets.token_hex(10)}",
        pool_uid=settings.pool_uid,
        pool_name=settings.pool_name,
        namespace=settings.namespace,
        pod_uid=settings.pod_uid,
        pod_name=settings.pod_name,
        node=settings.node_name,
        revision=settings.revision,
        queues=settings.queues,
        concurrency=settings.concurrency,
        task_types=task_types,
    )


def write_termination_log(path: Path, line: str) -> bool:
    """First line: exactly the worker's id, or why it could not start. Outside a container there is no such file."""
    try:
        with path.open("r+") as file:
            file.truncate()
            file.write(f"{line}\n")
    except OSError:
        return False
    return True


class PodLock:
    """The pod's exclusive lock. `inherit` is the descriptor that task processes keep open."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "worker.lock"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)

    @property
    def inherit(self) -> tuple[int, ...]:
        return (self._descriptor,)

    def try_take(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
