"""Settings. Rule: every figure has its unit in its name, and figures that contradict each other are refused at start.

`Constants` are the protocol's; `StoreSettings` says where the servers are. Read them with `load`, which turns any
fault into a `SettingsError` (exit code 2) that names the environment variable.
"""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.errors import SettingsError

PREFIX = "SLACKWATER_"
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Constants(BaseSettings):
    """Durations and caps of the lease protocol; tests scale them down together."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    lease_seconds: Seconds = 45
    renew_seconds: Seconds = 15
    trust_seconds: Seconds = 35
    """After this long without an answer, calls with side effects wait (rule 4)."""
    slot_seconds: Seconds = 60
    slot_silence_seconds: Seconds = 40
    """A live claim whose slot could not be renewed for this long raises the generation (rule 6)."""

    claim_timeout_seconds: Seconds = 5
    slot_timeout_seconds: Seconds = 2
    policy_timeout_seconds: Seconds = 3
    candidate_age_seconds: Seconds = 30
    statement_timeout_seconds: Seconds = 5
    lock_timeout_seconds: Seconds = 5
    idle_timeout_seconds: Seconds = 10
    """Idle in transaction: a frozen process holds no row."""

    sweep_expired_seconds: Seconds = 5
    sweep_touch_seconds: Seconds = 15
    sweep_stale_seconds: Seconds = 30
    sweep_orphans_seconds: Seconds = 300
    expiry_gap_seconds: Seconds = 15
    expiry_quiet_seconds: Seconds = 60
    marker_age_seconds: Seconds = 45
    raise_seconds: Seconds = 15
    """The slot generation is raised at most this often."""
    failover_pause_seconds: Seconds = 45
    clock_skew_seconds: Seconds = 5
    pending_seconds: Seconds = 900
    stale_seconds: Seconds = 1200
    interruption_cap: Annotated[int, Field(ge=1, le=1000)] = 3

    heartbeat_seconds: Seconds = 10
    heartbeat_dead_seconds: Seconds = 45
    hand_back_margin_seconds: Seconds = 15
    cancel_grace_seconds: Seconds = 10
    policy_ttl_seconds: Seconds = 2

    @property
    def fresh_slot_seconds(self) -> float:
        """Life of a slot that is not renewed yet. A touch that read the claims just before this one's commit vouches
        for all members until its marker is too old; the member must outlive that, however late the claim came."""
        latest_commit = self.candidate_age_seconds + 2 * self.statement_timeout_seconds + self.idle_timeout_seconds
        return max(self.slot_seconds, self.marker_age_seconds + latest_commit)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _require(self.renew_seconds <= self.lease_seconds / 3, "renew_seconds", "at most a third of lease_seconds")
        _require(self.trust_seconds < self.lease_seconds, "trust_seconds", "less than lease_seconds")
        _require(self.trust_seconds > self.renew_seconds, "trust_seconds", "more than renew_seconds")
        _require(self.slot_seconds > self.lease_seconds, "slot_seconds", "more than lease_seconds")
        _require(self.slot_silence_seconds < self.lease_seconds, "slot_silence_seconds", "less than lease_seconds")
        _require(
            self.candidate_age_seconds + self.statement_timeout_seconds + self.idle_timeout_seconds < self.slot_seconds,
            "candidate_age_seconds",
            "with statement_timeout_seconds and idle_timeout_seconds less than slot_seconds",
        )
        _require(self.marker_age_seconds < self.slot_seconds, "marker_age_seconds", "less than slot_seconds")
        _require(
            self.sweep_touch_seconds <= self.marker_age_seconds / 3,
            "sweep_touch_seconds",
            "at most a third of marker_age_seconds",
        )
        _require(self.failover_pause_seconds >= self.lease_seconds, "failover_pause_seconds", "at least lease_seconds")
        _require(
            self.expiry_gap_seconds > self.sweep_expired_seconds,
            "expiry_gap_seconds",
            "more than sweep_expired_seconds",
        )
        return self


class DeliverySettings(BaseSettings):
    """Deliveries of the outbox to webhooks."""

    model_config = SettingsConfigDict(env_prefix=f"{PREFIX}DELIVERY_", frozen=True, extra="ignore")

    sweep_seconds: Seconds = 1
    """A round begins at most this often; everybody who delivers shares the rounds."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10
    """Of one request, with its name's look-up."""
    tries: Annotated[int, Field(ge=1, le=50)] = 12
    """After this many a delivery is dead: about two hours with the waits below."""
    first_wait_seconds: Seconds = 5
    longest_wait_seconds: Seconds = 3600


Age = Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)]


class RetentionSettings(BaseSettings):
    """How long things are kept after their end; `slackwater prune` removes what is older."""

    model_config = SettingsConfigDict(env_prefix=f"{PREFIX}KEEP_", frozen=True, extra="ignore")

    tasks_days: Age = 30
    """A task with its claim, submissions and settlements."""
    results_days: Age = 30
    """A task's result and checkpoint; the task itself stays until its own age."""
    events_hours: Age = 24
    """After the task's end. Its last event stays as long as the task."""
    outbox_days: Age = 7
    dead_days: Age = 30
    """Deliveries that were given up."""
    audit_days: Age = 365
    keys_days: Age = 30
    """Idempotency keys of ended tasks. A repeat after that is a new task."""
    workers_days: Age = 7
    """Ended workers and the cordons of their pods."""


class StoreSettings(BaseSettings):
    """Where the servers are. `DATABASE_DIRECT_URL` serves LISTEN when `DATABASE_URL` goes through PgBouncer."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    database_url: SecretStr = Field(validation_alias="DATABASE_URL")
    database_direct_url: SecretStr | None = Field(default=None, validation_alias="DATABASE_DIRECT_URL")
    redis_url: SecretStr = Field(validation_alias="REDIS_URL")
    slot_prefix: str = Field(
        default="slackwater:slots", min_length=1, max_length=100, validation_alias="SLACKWATER_SLOT_PREFIX"
    )

    @property
    def listen_url(self) -> str:
        """The URL that keeps a session: direct if given."""
        return (self.database_direct_url or self.database_url).get_secret_value()


SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def load(kind: type[SettingsT]) -> SettingsT:
    """Read `kind` from the environment. Raises SettingsError naming the first setting at fault, without its value."""
    try:
        return kind()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        context = first.get("ctx", {})
        name = str(context.get("setting") or (first["loc"][0] if first["loc"] else kind.__name__))
        raise SettingsError(_variable(kind, name), first["msg"]) from None


def _variable(kind: type[BaseSettings], name: str) -> str:
    known = kind.model_fields.get(name)
    if known is None:
        return name
    if isinstance(known.validation_alias, str):
        return known.validation_alias
    return f"{kind.model_config.get('env_prefix', '')}{name}".upper()


def _require(holds: bool, setting: str, wanted: str) -> None:
    if not holds:
        raise PydanticCustomError("inconsistent", "must be {wanted}", {"setting": setting, "wanted": wanted})
