"""Bad input: each is refused with its field and limit; what is accepted is what gets stored (C108, C110, C112)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater import limits
from slackwater.errors import InvalidInput

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a\x00b", "payload"),
        ({"a": [1, {"b": "\x00"}]}, "payload.a[1].b"),
        ({"a": {"k\x00": 1}}, "payload.a"),
        ({"a": {"\ud800": 1}}, "payload.a"),
        (["ok", "\ud800"], "payload[1]"),
        ({"x": "\udfff tail"}, "payload.x"),
        ({"x": float("nan")}, "payload.x"),
        ({"x": [float("inf")]}, "payload.x[0]"),
        ({"x": -float("inf")}, "payload.x"),
        ({"x": 1 << 1024}, "payload.x"),
        ({"x": Decimal(1)}, "payload.x"),
        ({"x": NOW}, "payload.x"),
        ({"x": b"raw"}, "payload.x"),
        ({"x": {1, 2}}, "payload.x"),
        ({"x": {3: 1}}, "payload.x"),
        ({"x": object()}, "payload.x"),
    ],
)
def test_what_the_store_cannot_hold_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_payload(value)
    assert refused.value.field == path
    refused.value.message.encode()  # the message itself can be sent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"e": "😀 ü"}, '{"e":"😀 ü"}'),
        (1 << 63, "9223372036854775808"),
        ((1, (2,)), "[1,[2]]"),
        (None, "null"),
        ({}, "{}"),
        ([True, False, 0.5], "[true,false,0.5]"),
        (-0.0, "-0.0"),
        (nested(64), "[" * 64 + "1" + "]" * 64),
    ],
)
def test_what_is_json_passes_unchanged(value: object, text: str) -> None:
    assert limits.check_payload(value) == text


def test_a_level_too_deep_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_payload(nested(65))
    assert refused.value.limit == 64


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput):
        limits.check_result(loop)


def test_shared_parts_that_would_unfold_without_end_are_refused_quickly() -> None:
    value: Any = "x"
    for _ in range(60):
        value = [value, value]
    with pytest.raises(limits.TooLarge):
        limits.check_result(value)


@pytest.mark.parametrize("check", [limits.check_payload, limits.check_result, limits.check_event])
@pytest.mark.parametrize("character", ["x", "ü", "😀"])
def test_the_limit_is_exact_in_bytes(check: Any, character: str) -> None:
    limit = {
        limits.check_payload: 256 * 1024,
        limits.check_result: 1024 * 1024,
        limits.check_event: 64 * 1024,
    }[check]
    size = len(character.encode())
    fits = character * ((limit - 2) // size) + "x" * ((limit - 2) % size)
    assert len(check(fits).encode()) == limit
    with pytest.raises(limits.TooLarge) as refused:
        check(fits + "x")
    assert refused.value.limit == limit


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_json)
def test_what_passes_reads_back_as_it_was(value: Any) -> None:
    try:
        text = limits.check_payload(value)
    except InvalidInput:
        assert "\\u0000" in json.dumps(value)
        return
    assert limits.parse_json(text.encode()) == value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"NaN", b'{"a":Infinity}', b"[1e400]", b"[" * 200_000, b"1" * 5000, b"'a'"],
)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.parse_json(body)
    assert refused.value.field == "body"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("fine", "fine"),
        ("a\x00b\ud800c", "abc"),
        ("x" * 4096, "x" * 4096),
        ("x" * 5000, "x" * 4093 + "…"),
        ("😀" * 2000, "😀" * 1023 + "…"),
    ],
)
def test_error_texts_are_cleaned_and_cut_at_a_whole_character(text: str, clean: str) -> None:
    assert limits.clean_error_text(text) == clean
    assert len(limits.clean_error_text(text).encode()) <= 4096


@given(st.text(st.characters(), max_size=6000))
def test_any_error_text_becomes_storable(text: str) -> None:
    clean = limits.clean_error_text(text)
    assert len(clean.encode()) <= 4096
    assert "\x00" not in clean


@pytest.mark.parametrize("name", ["render", "a", "0", "a.b-c_d:e/f", "A" * 100])
def test_plain_names_pass(name: str) -> None:
    assert limits.check_name(name, field="type") == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a b", "a\n", "ü", "A" * 101, "a\x00", None, 3, "..", "/etc", "a;b", "٣"]
)
def test_other_names_are_refused_with_their_field(name: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_name(name, field="type")
    assert refused.value.field == "type"


@pytest.mark.parametrize("value", [-11, 11, 1.0, True, "1", None])
def test_priorities_out_of_range_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_priority(value)
    assert (refused.value.field, refused.value.limit) == ("priority", 10)


@pytest.mark.parametrize("value", [0, -1, 1000.5, float("nan"), float("inf"), True, "1", None, 10**400])
def test_costs_out_of_range_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        limits.check_cost(value)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-02T00:00:00",
        "tomorrow",
        5,
        None,
        (NOW + timedelta(days=367)).isoformat(),
        "9999-12-31T23:59:59-12:00",
        datetime(2026, 1, 2),  # noqa: DTZ001 - without an offset, as a careless caller has it
    ],
)
def test_instants_without_offset_or_too_far_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_run_at(value, now=NOW)
    assert refused.value.field == "run_at"


@pytest.mark.parametrize("value", ["2026-01-02T00:00:00Z", "2020-01-01T00:00:00+02:00", NOW])
def test_instants_with_offset_pass(value: object) -> None:
    assert limits.check_run_at(value, now=NOW).utcoffset() is not None


@pytest.mark.parametrize("key", ["a", "x" * 200, "ü-ключ", "with space inside"])
def test_idempotency_keys_are_any_visible_text(key: str) -> None:
    assert limits.check_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", " a", "a\n", "x" * 201, "\x7f", "\ud800", None])
def test_other_idempotency_keys_are_refused(key: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        limits.check_idempotency_key(key)
    assert refused.value.field == "Idempotency-Key"
