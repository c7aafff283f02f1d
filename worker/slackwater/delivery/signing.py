"""What proves to a receiver that a delivery is ours and fresh. Rule: the signature covers the time and every byte.

    Slackwater-Timestamp: 1767225600
    Slackwater-Signature: v1=<hex of HMAC-SHA256(secret, timestamp + "." + body)>[,v1=<the same with the older secret>]

A receiver compares in constant time and refuses a timestamp more than five minutes old; `verify` is what it may copy.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

TIMESTAMP: Final = "Slackwater-Timestamp"
SIGNATURE: Final = "Slackwater-Signature"
DELIVERY: Final = "Slackwater-Delivery"
"""The delivery's id: the same at every repeat, so that a receiver can tell one."""
EVENT: Final = "Slackwater-Event"
TOLERANCE_SECONDS: Final = 300


def new_secret() -> str:
    return f"swsec_{secrets.token_urlsafe(32)}"


def sign(secret: str, timestamp: int, body: bytes) -> str:
    digest = hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"


def headers(secrets_: Sequence[str], timestamp: int, body: bytes, *, delivery: str, kind: str) -> dict[str, str]:
    """Of one request; signed with each secret that is valid."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "slackwater",
        TIMESTAMP: str(timestamp),
        SIGNATURE: ",".join(sign(secret, timestamp, body) for secret in secrets_),
        DELIVERY: delivery,
        EVENT: kind,
    }


def verify(secret: str, timestamp: str, signature: str, body: bytes, *, now: float) -> bool:
    """Whether a request is ours and at most five minutes old."""
    if not timestamp.isascii() or not timestamp.isdigit() or abs(now - int(timestamp[:15])) > TOLERANCE_SECONDS:
        return False
    wanted = sign(secret, int(timestamp), body)
    return any(hmac.compare_digest(part.strip().encode(), wanted.encode()) for part in signature.split(","))
