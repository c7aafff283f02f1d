"""Bodies as OpenAPI describes them. Rule: the limits come from `limits`, which enforces them; here they are told."""

from __future__ import annotations

from typing import Any, Final

from slackwater import limits

_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": limits.NAME_LENGTH}
_LOW, _HIGH = limits.PRIORITY

_TASK: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "payload"],
    "additionalProperties": False,
    "properties": {
        "type": _NAME,
        "payload": {"description": f"Any JSON, at most {limits.PAYLOAD_BYTES} bytes and {limits.DEPTH} levels."},
        "queue": {**_NAME, "default": "default"},
        "channel": {"type": ["string", "null"], "maxLength": limits.NAME_LENGTH},
        "priority": {"type": "integer", "minimum": _LOW, "maximum": _HIGH, "default": 0},
        "cost": {"type": "number", "exclusiveMinimum": 0, "maximum": limits.COST_MAX, "default": 1},
        "run_at": {"type": ["string", "null"], "format": "date-time"},
    },
}
_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_LENGTH},
}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}, "parameters": [_KEY]}


TASK: Final = _body(_TASK)
BATCH: Final = _body(
    {
        "type": "object",
        "required": ["tasks"],
        "additionalProperties": False,
        "properties": {"tasks": {"type": "array", "minItems": 1, "maxItems": limits.BATCH_TASKS, "items": _TASK}},
    }
)
