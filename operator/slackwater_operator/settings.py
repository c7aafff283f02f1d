"""Settings of the operator. Rule: every figure has its unit in its name; contradictions end with exit code 2."""

from __future__ import annotations

import os
import socket
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "SLACKWATER_OPERATOR_"
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    namespaces: str = ""
    """Comma-separated; empty: the whole cluster."""
    own_namespace: str = Field(default="default", validation_alias="POD_NAMESPACE")
    identity: str = Field(default_factory=socket.gethostname, validation_alias="POD_NAME")
    lease_name: str = "slackwater-operator"
    http_port: int = Field(default=8080, ge=0, le=65535)
    http_host: str = "0.0.0.0"  # noqa: S104 - a container's port, reached by kubelet and Prometheus

    lease_seconds: Seconds = 15
    renew_deadline_seconds: Seconds = 10
    renew_seconds: Seconds = 2
    request_timeout_seconds: Seconds = 10
    lease_request_timeout_seconds: Seconds = 3

    watch_server_timeout_seconds: int = Field(default=300, ge=10, le=3600)
    watch_connect_timeout_seconds: Seconds = 10
    watch_silence_seconds: Seconds = 75
    """Bookmarks come about once a minute, so a watch that is quiet for longer is taken for dead."""
    resync_seconds: Seconds = 240
    rounds_at_once: int = Field(default=8, ge=1, le=64)
    notify_spacing_seconds: Seconds = 0.5
    status_spacing_seconds: Seconds = 1
    drift_seconds: Seconds = 60
    """Figures that only drift cause at most one write in this time."""
    pool_refresh_seconds: Seconds = 60
    unreconciled_seconds: Seconds = 300
    """/healthz fails when a pool had no round for this long."""
    sweeps: bool = True
    database_pool_size: int = Field(default=4, ge=2, le=64)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError("renew_deadline_seconds must be less than lease_seconds")
        if self.lease_request_timeout_seconds > self.renew_deadline_seconds / 3:
            raise ValueError("lease_request_timeout_seconds must be at most a third of renew_deadline_seconds")
        return self

    @property
    def namespace_list(self) -> tuple[str, ...]:
        return tuple(n.strip() for n in self.namespaces.split(",") if n.strip())


def load() -> Settings:
    """Read the environment; any fault ends the process with exit code 2 and a message that names the setting."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise SystemExit(_complain(f"{PREFIX}{name.upper()}: {first['msg']}")) from None


def _complain(message: str) -> int:
    os.write(2, f"slackwater-operator: {message}\n".encode())
    return 2
