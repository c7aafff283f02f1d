"""From bytes to requests. Rule: no more is read than could be accepted, and whatever is wrong is named by its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from starlette.requests import Request

from slackwater.claim import TaskState
from slackwater.errors import InvalidInput
from slackwater.limits import BATCH_TASKS, IDEMPOTENCY_KEY_LENGTH, PAYLOAD_BYTES, TooLarge, check_run_at, parse_json
from slackwater.store.admission import Submit
from slackwater.store.reading import PAGE, PAGE_MAX

BODY_BYTES: Final = 2 * PAYLOAD_BYTES + 16 * 1024
"""Of one task: a payload at its limit, with half of it escaped, and the other fields."""
BATCH_BYTES: Final = 4 * 1024 * 1024
FIELDS: Final = frozenset({"type", "payload", "queue", "channel", "priority", "cost", "run_at"})
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


async def read_body(request: Request, limit: int) -> bytes:
    """The body, or TooLarge as soon as that is certain: at once by its length, else at the first byte too many."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _body_too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _body_too_large(limit)
        parts.append(part)
    return b"".join(parts)


async def read_task(request: Request, user: str) -> Submit:
    document = parse_json(await read_body(request, BODY_BYTES))
    return _task(document, "", user, request.headers.get("idempotency-key"), trace_id(request))


async def read_batch(request: Request, user: str) -> list[Submit]:
    """`{"tasks": [...]}`. With an Idempotency-Key each task has that key and its number."""
    document = parse_json(await read_body(request, BATCH_BYTES))
    if not isinstance(document, dict) or set(document) != {"tasks"} or not isinstance(document["tasks"], list):
        raise InvalidInput("body", None, 'must be an object {"tasks": [...]}')
    tasks = document["tasks"]
    if not 1 <= len(tasks) <= BATCH_TASKS:
        raise InvalidInput("tasks", BATCH_TASKS, f"must be 1 to {BATCH_TASKS} tasks")
    key, trace = request.headers.get("idempotency-key"), trace_id(request)
    if key is not None and len(key) > IDEMPOTENCY_KEY_LENGTH - 4:
        raise InvalidInput("Idempotency-Key", IDEMPOTENCY_KEY_LENGTH - 4, "is too long for a batch")
    return [
        _task(task, f"tasks[{i}].", user, None if key is None else f"{key}/{i}", trace) for i, task in enumerate(tasks)
    ]


def trace_id(request: Request) -> str:
    """The caller's trace if it sent one (W3C traceparent), else a new one."""
    sent = _TRACE.fullmatch(request.headers.get("traceparent", ""))
    return sent.group(1) if sent else uuid4().hex


def task_id(text: str) -> UUID | None:
    """None for what can't be an id: it names no task."""
    try:
        value = UUID(text)
    except ValueError:
        return None
    return value if str(value) == text.lower() else None


def states(query: Mapping[str, str]) -> tuple[str, ...]:
    wanted = tuple(part for part in query.get("state", "").split(",") if part)
    if unknown := [state for state in wanted if state not in set(TaskState)]:
        raise InvalidInput("state", [s.value for s in TaskState], f"has no state {unknown[0][:40]!r}")
    return wanted


def page(query: Mapping[str, str]) -> tuple[int, UUID | None]:
    """Size and cursor of a list."""
    limit = natural(query.get("limit", str(PAGE)), "limit")
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidInput("limit", PAGE_MAX, f"must be from 1 to {PAGE_MAX}")
    cursor = query.get("cursor")
    before = None if cursor is None else task_id(cursor)
    if cursor is not None and before is None:
        raise InvalidInput("cursor", None, "is not one that a list gave")
    return limit, before


def natural(value: str, field: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise InvalidInput(field, None, "must be a non-negative integer")
    return int(value)


def _task(document: Any, prefix: str, user: str, key: str | None, trace: str) -> Submit:
    if not isinstance(document, dict):
        raise InvalidInput(prefix.rstrip(".") or "body", None, "must be an object")
    if unknown := sorted(set(document) - FIELDS):
        raise InvalidInput(prefix + unknown[0][:40], sorted(FIELDS), "is no field of a task")
    for needed in ("type", "payload"):
        if needed not in document:
            raise InvalidInput(prefix + needed, None, "is missing")
    values = dict(document)
    if "run_at" in values:
        values["run_at"] = (
            None
            if values["run_at"] is None
            else check_run_at(values["run_at"], now=datetime.now(UTC), field=f"{prefix}run_at")
        )
    return Submit(**values, user_id=user, idempotency_key=key, trace_id=trace)


def _body_too_large(limit: int) -> TooLarge:
    return TooLarge("body", limit, f"is larger than {limit} bytes")
