"""What the door refuses. Rule: bad input gets an error naming the field and its limit, before anything is written.

Values are judged as they will be stored: compact JSON in UTF-8. Documented conversions: a tuple becomes an array, a
string enum its value; -0.0 is stored as 0. Everything else that JSON lacks (NaN, infinity, bytes, sets, dates,
decimals, keys that are no strings) is refused with the path to it, never guessed at.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from slackwater.errors import InvalidInput

PAYLOAD_BYTES: Final = 256 * 1024
RESULT_BYTES: Final = 1024 * 1024
EVENT_BYTES: Final = 64 * 1024
CHECKPOINT_BYTES: Final = RESULT_BYTES
ERROR_TEXT_BYTES: Final = 4 * 1024
DEPTH: Final = 64
INTEGER_BITS: Final = 1024
"""Beyond it a number is no figure any more, and Python refuses to print it from 4,300 digits on."""
NAME_LENGTH: Final = 100
USER_LENGTH: Final = 128
IDEMPOTENCY_KEY_LENGTH: Final = 200
PRIORITY: Final = (-10, 10)
COST_MAX: Final = 1000.0
RESERVE_MAX: Final = 1_000_000_000
RUN_AT_AHEAD: Final = timedelta(days=366)
BATCH_TASKS: Final = 100

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?", re.ASCII)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PATH_KEY = 40
_PATH_LENGTH = 200


class TooLarge(InvalidInput):
    """Size alone is wrong; the gateway answers 413."""


def check_payload(value: object, field: str = "payload") -> str:
    """The payload as JSON text, or InvalidInput."""
    return check_json(value, field=field, max_bytes=PAYLOAD_BYTES)


def check_result(value: object, field: str = "result") -> str:
    return check_json(value, field=field, max_bytes=RESULT_BYTES)


def check_event(value: object, field: str = "event") -> str:
    return check_json(value, field=field, max_bytes=EVENT_BYTES)


def check_checkpoint(value: object, field: str = "checkpoint") -> str:
    return check_json(value, field=field, max_bytes=CHECKPOINT_BYTES)


def check_json(value: object, *, field: str, max_bytes: int, max_depth: int = DEPTH) -> str:
    """`value` as compact JSON text. Walks without recursion, and never further than a value that could still fit."""
    room = max_bytes
    todo: list[tuple[object, _Place]] = [(value, _Place(None, field, 0))]
    while todo:
        item, place = todo.pop()
        room -= 1  # each value is at least a byte, so a graph of shared parts can't keep us here
        if isinstance(item, str):
            _check_text(item, place)
            room -= len(item) + 1
        elif isinstance(item, dict | list | tuple):
            if place.depth == max_depth:
                raise InvalidInput(place.path(), max_depth, f"nested deeper than {max_depth} levels")
            room -= len(item)
            if room >= 0:
                todo.extend(_children(item, place))
        else:
            _check_scalar(item, place)
        if room < 0:
            raise _too_large(field, max_bytes)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(text.encode()) > max_bytes:
        raise _too_large(field, max_bytes)
    return text


def parse_json(body: bytes, *, field: str = "body", max_depth: int = DEPTH) -> Any:
    """JSON text from outside. NaN and infinity, also as 1e400, are no JSON."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as e:
        raise InvalidInput(field, None, f"is not UTF-8 (byte {e.start})") from None
    except RecursionError:
        raise InvalidInput(field, max_depth, f"nested deeper than {max_depth} levels") from None
    except json.JSONDecodeError as e:
        raise InvalidInput(field, None, f"is not JSON: {e.msg} at byte {e.pos}") from None
    except ValueError as e:
        raise InvalidInput(field, None, f"is not JSON: {e}") from None


def clean_error_text(text: str, max_bytes: int = ERROR_TEXT_BYTES) -> str:
    """An error text that can be stored: NUL and lone surrogates stripped, cut at a whole character."""
    clean = _UNSTORABLE.sub("", text[: 2 * max_bytes]).encode()
    if len(clean) <= max_bytes:
        return clean.decode()
    mark = "…".encode()
    return clean[: max_bytes - len(mark)].decode(errors="ignore") + "…"


def check_name(value: object, *, field: str, max_length: int = NAME_LENGTH) -> str:
    """Names of types, queues and channels: also labels, keys in Redis and lines in logs, so plain ASCII."""
    text = _text(value, field, max_length)
    if not _NAME.fullmatch(text):
        raise InvalidInput(
            field, None, "must be letters, digits and . _ : / -, beginning and ending with a letter or digit"
        )
    return text


def check_channel(value: object, *, field: str = "channel") -> str:
    return "" if value in (None, "") else check_name(value, field=field)


def check_user(value: object, *, field: str = "user") -> str:
    return _visible(value, field, USER_LENGTH)


def check_idempotency_key(value: object, *, field: str = "Idempotency-Key") -> str:
    return _visible(value, field, IDEMPOTENCY_KEY_LENGTH)


def check_priority(value: object, *, field: str = "priority") -> int:
    low, high = PRIORITY
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(field, high, f"must be an integer from {low} to {high}")
    return value


def check_cost(value: object, *, field: str = "cost", maximum: float = COST_MAX) -> float:
    number = _number(value, field)
    if not 0 < number <= maximum:
        raise InvalidInput(field, int(maximum), f"must be above 0 and at most {maximum:g}")
    return number


def check_reserve(value: object, *, field: str = "reserve") -> float:
    number = _number(value, field)
    if not 0 <= number <= RESERVE_MAX:
        raise InvalidInput(field, RESERVE_MAX, f"must be from 0 to {RESERVE_MAX}")
    return number


def check_run_at(value: object, *, now: datetime, field: str = "run_at") -> datetime:
    """An instant with its offset; the past means now."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(field, None, "must be an ISO 8601 date and time") from None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput(field, None, "must be an ISO 8601 date and time with its offset from UTC")
    try:
        late = value > now + RUN_AT_AHEAD
    except OverflowError:
        late = True
    if late:
        raise InvalidInput(field, RUN_AT_AHEAD.days, f"must be within {RUN_AT_AHEAD.days} days from now")
    return value


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands. Written out only for an error: a hundred thousand whole paths would be an attack."""

    parent: _Place | None
    step: str
    depth: int

    def path(self) -> str:
        steps: list[str] = []
        place: _Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.parent
        text = "".join(reversed(steps))
        return text if len(text) <= _PATH_LENGTH else text[: _PATH_LENGTH - 1] + "…"


def _children(item: Any, place: _Place) -> list[tuple[object, _Place]]:
    depth = place.depth + 1
    if not isinstance(item, dict):
        return [(child, _Place(place, f"[{i}]", depth)) for i, child in enumerate(item)]
    found: list[tuple[object, _Place]] = []
    for key, child in item.items():
        if not isinstance(key, str):
            kind = type(key).__name__
            raise InvalidInput(place.path(), None, f"has a key of type {kind}; keys must be strings")
        if _UNSTORABLE.search(key):
            shown = ascii(key[:_PATH_KEY])
            raise InvalidInput(place.path(), None, f"has a key with NUL or a lone surrogate: {shown}")
        found.append((key, place))  # for its size
        found.append((child, _Place(place, f".{key[:_PATH_KEY]}", depth)))
    return found


def _check_text(text: str, place: _Place) -> None:
    if bad := _UNSTORABLE.search(text):
        what = "a NUL character" if bad.group() == "\x00" else "a lone surrogate"
        raise InvalidInput(place.path(), None, f"contains {what} at position {bad.start()}, which JSONB can't hold")


def _check_scalar(item: object, place: _Place) -> None:
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, int):
        if item.bit_length() > INTEGER_BITS:
            raise InvalidInput(place.path(), INTEGER_BITS, f"is an integer of more than {INTEGER_BITS} bits")
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise InvalidInput(place.path(), None, f"is {item}, which JSON lacks")
    else:
        raise InvalidInput(place.path(), None, f"is of type {type(item).__name__}, which JSON lacks")


def _text(value: object, field: str, max_length: int) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(field, max_length, "must be text that is not empty")
    if len(value) > max_length:
        raise InvalidInput(field, max_length, f"must have at most {max_length} characters")
    return value


def _visible(value: object, field: str, max_length: int) -> str:
    text = _text(value, field, max_length)
    if _CONTROL.search(text) or text != text.strip():
        raise InvalidInput(field, None, "must have no control characters and no spaces around it")
    return text


def _number(value: object, field: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput(field, None, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(field, None, "must be a finite number")
    return number


def _too_large(field: str, max_bytes: int) -> TooLarge:
    return TooLarge(field, max_bytes, f"is larger than {max_bytes} bytes as JSON")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_PATH_KEY]} is too large for a number")
    return number
