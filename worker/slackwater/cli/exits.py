"""Exit codes of every command, in one place; docs/exit-codes.md says the same for people."""

from __future__ import annotations

from enum import IntEnum

from slackwater.admission import Code
from slackwater.errors import (
    InvalidInput,
    Refused,
    SettingsError,
    SlackwaterError,
    SlotsLost,
    SlotsUnavailable,
    StoreUnavailable,
)


class Exit(IntEnum):
    OK = 0
    """Done. A worker: drained."""
    FAILED = 1
    """It failed, or `doctor` found something wrong."""
    USAGE = 2
    """Wrong arguments, bad settings, or input that breaks a limit."""
    DEADLINE = 3
    """A worker: the drain deadline came first."""
    STUBBORN = 4
    """A worker: task code did not stop when it was cancelled."""
    NOT_FOUND = 5
    CONFLICT = 6
    """The state that stands forbids it, or the key was used with another request."""
    REFUSED = 7
    """Admission says no: the user's or the system's queue is full, or the queue is closed."""
    UNAVAILABLE = 8
    """No answer from Postgres or Redis."""


class NotFound(SlackwaterError):
    """No such task or queue."""


def exit_of(error: SlackwaterError) -> Exit:
    """The code that a command ends with after this error."""
    from slackwater.store.admin import StateStands  # the store is heavy, and this runs once

    match error:
        case SettingsError() | InvalidInput():
            return Exit.USAGE
        case NotFound():
            return Exit.NOT_FOUND
        case StateStands():
            return Exit.CONFLICT
        case Refused():
            return Exit.CONFLICT if error.code == Code.IDEMPOTENCY_CONFLICT else Exit.REFUSED
        case StoreUnavailable() | SlotsUnavailable() | SlotsLost():
            return Exit.UNAVAILABLE
        case _:
            return Exit.FAILED
