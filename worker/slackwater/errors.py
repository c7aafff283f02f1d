"""The error tree. Rule: an error says whether it is an answer.

SlackwaterError
├── SettingsError        a setting is missing or impossible; exit code 2, names the setting
├── LeaseLost            an answer: the statement ran and this claim no longer stands; nothing was written
├── StoreUnavailable     no answer from the database (connection, time-out, read-only, serialization, not migrated)
│   └── PolicyUnreadable the policy could not be read: claiming pauses, a request answers an error, never a default
├── SlotsUnavailable     no answer from Redis
├── SlotsLost            Redis answered that its slots are not those of the present generation
├── InvalidInput         bad input from outside; names the field
└── Refused              admission says no; carries the code and the body's detail
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.claim import Claim


class SlackwaterError(Exception):
    """Root of everything this package raises on purpose."""


class SettingsError(SlackwaterError):
    """A setting is missing or impossible. Processes end with `exit_code`."""

    exit_code = 2

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(f"{setting}: {message}")
        self.setting = setting


class LeaseLost(SlackwaterError):
    """The claim was taken away or has ended. The transaction that found out did nothing."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(f"the claim of task {claim.task_id}, epoch {claim.epoch}, no longer stands")
        self.claim = claim


class StoreUnavailable(SlackwaterError):
    """The database gave no answer; whether the statement took effect is not known."""


class PolicyUnreadable(StoreUnavailable):
    """The policy document is missing, invalid or out of reach."""


class SlotsUnavailable(SlackwaterError):
    """Redis gave no answer; whether the script took effect is not known."""


class SlotsLost(SlackwaterError):
    """Redis has lost its slots, or holds those of another generation."""


class InvalidInput(SlackwaterError):
    """Input from outside breaks a limit; `field` names it, `limit` is what would have been accepted."""

    def __init__(self, field: str, limit: object, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.limit = limit
        self.message = message


class Refused(SlackwaterError):
    """Admission refuses; `code` is for programs, `detail` is the body's object."""

    def __init__(self, code: str, detail: Mapping[str, Any]) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
