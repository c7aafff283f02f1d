"""What can go wrong, as one tree. Rule: a caller branches on the class, a person reads reason and message.

OperatorError
├── InvalidSpec          the resource says something that can't be: field and message
├── StoreUnreachable     the store gave no answer; nothing may be deleted
├── NotLeader            the Lease may be somebody else's by now; nothing may be written
└── ApiError             the API server's answer
    ├── NotFound  AlreadyExists  Conflict  Invalid  Forbidden (QuotaExceeded, NamespaceTerminating)  Gone
    └── Unavailable      429, 5xx, time-outs, no connection: try again later
"""

from __future__ import annotations

from slackwater_operator.names import Reason


class OperatorError(Exception):
    reason: Reason = Reason.API_UNAVAILABLE
    concerns_process = False
    """Not this pool's matter: the process can't go on."""


class InvalidSpec(OperatorError):
    reason = Reason.INVALID_SPEC

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class StoreUnreachable(OperatorError):
    reason = Reason.UNREACHABLE


class NotLeader(OperatorError):
    """This process is no longer sure to be the leader."""

    concerns_process = True


class ApiError(OperatorError):
    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class NotFound(ApiError):
    pass


class AlreadyExists(ApiError):
    reason = Reason.NAME_TAKEN


class Conflict(ApiError):
    """A precondition (uid, resourceVersion) didn't hold."""


class Invalid(ApiError):
    reason = Reason.POD_REJECTED


class Forbidden(ApiError):
    reason = Reason.FORBIDDEN


class QuotaExceeded(Forbidden):
    reason = Reason.QUOTA_EXCEEDED


class NamespaceTerminating(Forbidden):
    reason = Reason.NAMESPACE_TERMINATING


class Gone(ApiError):
    """410: the list's resource version is too old."""


class Unavailable(ApiError):
    reason = Reason.API_UNAVAILABLE
