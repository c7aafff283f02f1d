"""The gateway's own settings; those of the stores are `slackwater.settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.errors import SettingsError
from slackwater.gateway.auth import Tokens, TokensFile, parse_tokens
from slackwater.settings import PREFIX, Seconds


class GatewaySettings(BaseSettings):
    """Connections to Postgres: `pool_size`, and one more that listens."""

    model_config = SettingsConfigDict(
        env_prefix=f"{PREFIX}GATEWAY_", frozen=True, extra="ignore", populate_by_name=True
    )

    tokens_file: Path | None = Field(default=None, validation_alias=f"{PREFIX}TOKENS_FILE")
    tokens: SecretStr | None = Field(default=None, validation_alias=f"{PREFIX}TOKENS")
    pool_size: Annotated[int, Field(ge=1, le=200)] = 10
    heartbeat_seconds: Seconds = 15
    poll_seconds: Annotated[float, Field(gt=0, le=600)] = 0.75
    """A stream looks for events this often unasked: the delay that a lost notification may cost (R-SSE-09)."""
    send_timeout_seconds: Seconds = 30
    """A stream's reader that takes nothing for this long is dropped; it may resume by the last id it saw."""
    max_streams: Annotated[int, Field(ge=1, le=100_000)] = 1000
    probe_seconds: Seconds = 1
    """Redis is asked at most this often whether it is there."""
    sweep_seconds: Seconds = 2.5
    deliver: bool = True
    """Take part in the deliveries of the outbox to webhooks."""
    log_level: str = Field(default="INFO", validation_alias=f"{PREFIX}LOG_LEVEL")
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = 3
    """After SIGTERM: not ready, but still serving, until load balancers have noticed."""
    shutdown_seconds: Annotated[int, Field(ge=1, le=600)] = 20

    def load_tokens(self) -> Tokens:
        """Raises SettingsError when there are none: a gateway without tokens would let nobody in."""
        if self.tokens_file is not None:
            try:
                return TokensFile(self.tokens_file)
            except (OSError, ValueError) as e:
                raise SettingsError(f"{PREFIX}TOKENS_FILE", str(e)) from None
        if self.tokens is not None:
            try:
                return parse_tokens(self.tokens.get_secret_value(), source="the value")
            except ValueError as e:
                raise SettingsError(f"{PREFIX}TOKENS", str(e)) from None
        raise SettingsError(f"{PREFIX}TOKENS_FILE", "is not set, nor is SLACKWATER_TOKENS; nobody could call")
