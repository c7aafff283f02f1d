"""From errors to answers. Rule: `detail` is always an object with a `code` and a `message`; clients branch on the code.

Nothing of the store's own words goes out: they may hold addresses, statements, or what somebody sent.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from slackwater.admission import Code, unavailable
from slackwater.errors import InvalidInput, Refused, SlackwaterError, SlotsUnavailable, StoreUnavailable
from slackwater.limits import TooLarge
from slackwater.logging import logger
from slackwater.store.admin import StateStands

log = logger("slackwater.gateway")

STATUS: Final = {
    Code.USER_QUEUE_FULL: 429,
    Code.SYSTEM_QUEUE_FULL: 503,
    Code.CHANNEL_QUEUE_FULL: 503,
    Code.STORE_UNAVAILABLE: 503,
    Code.QUEUE_CLOSED: 409,
    Code.IDEMPOTENCY_CONFLICT: 409,
}
_MESSAGES: Final = {
    Code.QUEUE_CLOSED: "Every pool that serves this queue is closed for new tasks.",
    Code.IDEMPOTENCY_CONFLICT: "This Idempotency-Key was used before with another request.",
}
CLOSED_RETRY_SECONDS: Final = 60
"""Asking again soon is of use only if somebody changes something meanwhile."""
_PLAIN: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


class Unauthorized(SlackwaterError):
    """No token, or one that nobody has."""


class Forbidden(SlackwaterError):
    """A valid token without the right."""


class NotFound(SlackwaterError):
    """No such task, or another user's: the same answer."""


def plain(status: int, code: str, message: str, *, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    return JSONResponse({"detail": {"code": code, "message": message, **more}}, status, headers)


def detail(code: Code) -> dict[str, object]:
    """Of a refusal that is not for want of room."""
    return {"code": code.value, "message": _MESSAGES[code]}


def add_handlers(app: FastAPI) -> None:
    """Each error of the package has one answer, here."""

    @app.exception_handler(InvalidInput)
    async def _invalid(_request: Request, error: InvalidInput) -> JSONResponse:
        large = isinstance(error, TooLarge)
        status, code = (413, "TOO_LARGE") if large else (422, "INVALID_INPUT")
        headers = {"Connection": "close"} if large else None  # the rest of the body is not read
        return plain(status, code, str(error), headers=headers, field=error.field, limit=error.limit)

    @app.exception_handler(Refused)
    async def _refused(_request: Request, error: Refused) -> JSONResponse:
        code = Code(error.code)
        return JSONResponse({"detail": detail(code)}, STATUS[code], {"Retry-After": str(CLOSED_RETRY_SECONDS)})

    @app.exception_handler(StoreUnavailable)
    @app.exception_handler(SlotsUnavailable)
    async def _unavailable(_request: Request, error: SlackwaterError) -> JSONResponse:
        log.warning("store unavailable", cause=type(error).__name__)
        detail = unavailable()
        headers = {"Retry-After": str(detail.estimated_wait_seconds)}
        return JSONResponse({"detail": detail.as_dict()}, 503, headers)

    @app.exception_handler(Unauthorized)
    async def _unauthorized(_request: Request, _error: Unauthorized) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"}
        return plain(401, "UNAUTHORIZED", "A valid bearer token is needed.", headers=headers)

    @app.exception_handler(Forbidden)
    async def _forbidden(_request: Request, _error: Forbidden) -> JSONResponse:
        return plain(403, "FORBIDDEN", "This needs an administrator's token.")

    @app.exception_handler(NotFound)
    async def _not_found(_request: Request, _error: NotFound) -> JSONResponse:
        return plain(404, "NOT_FOUND", "There is no such task.")

    @app.exception_handler(StateStands)
    async def _conflict(_request: Request, error: StateStands) -> JSONResponse:
        return plain(409, "STATE_CONFLICT", str(error), state=error.state.value)

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        code = _PLAIN.get(error.status_code, "ERROR")
        return plain(error.status_code, code, str(error.detail), headers=dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def _validation(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return plain(422, "INVALID_INPUT", str(first["msg"]), field=str(first["loc"][-1]), limit=None)

    @app.exception_handler(Exception)
    async def _fault(_request: Request, error: Exception) -> JSONResponse:
        log.error("fault", cause=type(error).__name__)  # starlette logs the traceback
        return plain(500, "INTERNAL", "The request could not be handled.")
