"""The pipe between the worker and the process of a plain function: length-prefixed JSON objects, nothing executable.

Pure: bytes in, values out. The claim and a submission are the only values that are not plain JSON.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import Any
from uuid import UUID

from slackwater.claim import Claim, Submission
from slackwater.sdk import Run

HEAD = struct.Struct("!I")
MAX_BYTES = 16 * 2**20
"""A result of 1 MiB of control characters is 6 MiB of JSON; more than this is refused by its sender."""

Message = dict[str, Any]
_SUBMISSION = "__submission__"


def encode(message: Message) -> bytes:
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is too large for the pipe")
    return HEAD.pack(len(body)) + body


def size(head: bytes) -> int:
    (length,) = HEAD.unpack(head)
    if length > MAX_BYTES:
        raise ValueError(f"a frame of {length} bytes is too large")
    return int(length)


def decode(body: bytes) -> Message:
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a frame is a JSON object")
    return message


def run_to_json(run: Run) -> Message:
    plain = asdict(run)
    plain["claim"] = _plain(plain["claim"])
    return plain


def run_from_json(plain: Message) -> Run:
    claim = plain["claim"]
    return Run(
        **{
            **plain,
            "claim": Claim(
                task_id=UUID(claim["task_id"]),
                epoch=int(claim["epoch"]),
                token=UUID(claim["token"]),
                worker_id=claim["worker_id"],
            ),
        }
    )


def value_to_json(value: Any) -> Any:
    return {_SUBMISSION: _plain(asdict(value))} if isinstance(value, Submission) else value


def value_from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {_SUBMISSION}:
        fields = value[_SUBMISSION]
        return Submission(**{**fields, "task_id": UUID(fields["task_id"])})
    return value


def _plain(fields: Message) -> Message:
    return {name: str(value) if isinstance(value, UUID) else value for name, value in fields.items()}
