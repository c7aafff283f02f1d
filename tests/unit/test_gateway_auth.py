"""Tokens: who they let in, and what a wrong file is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackwater.gateway.auth import Caller, TokensFile, bearer, parse_tokens

GOOD = "0123456789abcdef"


def test_a_token_names_its_user_and_rights() -> None:
    tokens = parse_tokens(json.dumps({GOOD: {"user": "alice", "admin": True}, GOOD[::-1]: "bob"}), source="s")
    assert tokens.find(GOOD) == Caller("alice", True)
    assert tokens.find(GOOD[::-1]) == Caller("bob", False)
    for wrong in ("", GOOD[:-1], GOOD + "x", "é" * 16, "\ud800" * 16):
        assert tokens.find(wrong) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ("{}", "must be an object"),
        ('{"short": "alice"}', "at least 16"),
        (f'{{"{GOOD}": 3}}', "entry 1 must be"),
        (f'{{"{GOOD}": {{"user": ""}}}}', "user"),
        (f'{{"{GOOD}": {{"admin": true}}}}', "user"),
        (f'{{"{GOOD}": {{"user": "a", "admin": "yes"}}}}', "true or false"),
        (f'{{"{GOOD}": {{"user": "a", "more": 1}}}}', "entry 1 must be"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong_and_never_a_token(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as wrong:
        parse_tokens(text, source="tokens.json")
    assert "tokens.json" in str(wrong.value)
    assert GOOD not in str(wrong.value)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer  ", None),
        ("Basic x", None),
        ("Bearer x", "x"),
        ("bearer  x ", "x"),
    ],
)
def test_the_header_is_read(header: str | None, token: str | None) -> None:
    assert bearer(header) == token


def test_a_file_is_followed_and_a_broken_one_keeps_what_was_known(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({GOOD: "alice"}))
    tokens = TokensFile(path)

    def replaced(text: str) -> None:  # as a mounted secret is: by another file
        new = tmp_path / "new"
        new.write_text(text)
        new.rename(path)

    replaced(json.dumps({GOOD[::-1]: "bob"}))
    assert tokens.find(GOOD) is None
    assert tokens.find(GOOD[::-1]) == Caller("bob", False)
    replaced("{")
    assert tokens.find(GOOD[::-1]) == Caller("bob", False)
    path.unlink()
    assert tokens.find(GOOD[::-1]) == Caller("bob", False)
    replaced(json.dumps({GOOD: "carol"}))
    assert tokens.find(GOOD) == Caller("carol", False)
