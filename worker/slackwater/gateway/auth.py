"""Bearer tokens. Rule: every token is compared in constant time, and a wrong one is told nothing but that.

Tokens come as JSON, from a file (a mounted secret; read again when it changes) or from the environment:
`{"<token>": {"user": "alice", "admin": false}}`, or `{"<token>": "alice"}` for short.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from slackwater.errors import InvalidInput
from slackwater.limits import check_user

TOKEN_LENGTH: Final = 16
"""At least; shorter ones can be guessed."""


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    admin: bool


class Tokens(Protocol):
    def find(self, token: str) -> Caller | None: ...


class KnownTokens:
    """A fixed set. Only digests are kept, so a dump of memory or a stray repr shows no token."""

    def __init__(self, callers: Iterable[tuple[str, Caller]]) -> None:
        self._callers = [(_digest(token), caller) for token, caller in callers]

    def find(self, token: str) -> Caller | None:
        presented, found = _digest(token), None
        for digest, caller in self._callers:  # all of them, whichever matches
            if hmac.compare_digest(digest, presented):
                found = caller
        return found

    def __len__(self) -> int:
        return len(self._callers)


class TokensFile:
    """Follows a mounted secret. A file that turns unreadable keeps what was known: a rotation must not lock all out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)
        self._known = parse_tokens(path.read_text(encoding="utf-8"), source=str(path))

    def find(self, token: str) -> Caller | None:
        if (version := _version(self._path)) not in (None, self._seen):
            self._seen = version
            with contextlib.suppress(OSError, ValueError):
                self._known = parse_tokens(self._path.read_text(encoding="utf-8"), source=str(self._path))
        return self._known.find(token)


def parse_tokens(text: str, *, source: str) -> KnownTokens:
    """ValueError names the source and what is wrong, and never a token."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"{source} is not JSON: {e.msg} at line {e.lineno}") from None
    if not isinstance(document, dict) or not document:
        raise ValueError(f'{source} must be an object {{"<token>": {{"user": "<name>", "admin": false}}}}')
    return KnownTokens(_entry(number, *entry, source) for number, entry in enumerate(document.items(), 1))


def bearer(header: str | None) -> str | None:
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _entry(number: int, token: str, value: object, source: str) -> tuple[str, Caller]:
    fields = {"user": value} if isinstance(value, str) else value
    where = f"{source}: entry {number}"
    if len(token) < TOKEN_LENGTH:
        raise ValueError(f"{where}: a token needs at least {TOKEN_LENGTH} characters")
    if not isinstance(fields, dict) or set(fields) - {"user", "admin"}:
        raise ValueError(f'{where} must be {{"user": "<name>", "admin": false}}')
    admin = fields.get("admin", False)
    if not isinstance(admin, bool):
        raise ValueError(f"{where}: admin must be true or false")
    try:
        return token, Caller(check_user(fields.get("user")), admin)
    except InvalidInput as e:
        raise ValueError(f"{where}: {e}") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _version(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
