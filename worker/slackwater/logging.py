"""Logs: one JSON object a line on standard output.

Rule: every line of an execution carries task, epoch, worker, user hash and trace id; no line carries a payload, a
result, or a password. Standard-library loggers go the same way.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

import structlog

_PASSWORD_IN_URL = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@]+@", re.IGNORECASE)
_PASSWORD_IN_DSN = re.compile(r"\b(password|passwd|token|secret)\s*=\s*('[^']*'|\S+)", re.IGNORECASE)
_SECRET_KEYS = frozenset({"payload", "result", "request", "checkpoint", "password", "secret", "authorization", "dsn"})


def redact(text: str) -> str:
    text = _PASSWORD_IN_URL.sub(r"\g<head>:***@", text)
    return _PASSWORD_IN_DSN.sub(r"\1=***", text)


def user_hash(user_id: str) -> str:
    """Joins a user's lines without naming the user."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:12]


def _redact_values(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in line.items():
        if key.lower() in _SECRET_KEYS:
            line[key] = "***"
        elif isinstance(value, str):
            line[key] = redact(value)
        elif isinstance(value, BaseException):
            line[key] = redact(f"{type(value).__name__}: {value}")
    return line


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    structlog.processors.EventRenamer("message"),
    _redact_values,
]


def configure(*, level: str = "INFO", bound: Mapping[str, Any] | None = None) -> None:
    """Once per process. `bound` is what a task's own process adds to each of its lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("httpx", "httpcore"):  # they log the addresses of each call, with whatever is in them
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    if bound:
        structlog.contextvars.bind_contextvars(**bound)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    return structlog.stdlib.get_logger(name)


def write_now(line: Mapping[str, Any], worker: str) -> None:
    """A line without a logger, whose lock the interrupted code may hold: for signal handlers."""
    stamp = datetime.now(UTC).isoformat()
    os.write(1, (json.dumps({**line, "worker": worker, "level": "info", "timestamp": stamp}) + "\n").encode())
