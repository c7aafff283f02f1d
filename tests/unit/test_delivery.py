"""Deliveries, the parts that need no servers: signatures, addresses, waits."""

from __future__ import annotations

import pytest

from slackwater.delivery.address import parse, public
from slackwater.delivery.round import wait_seconds
from slackwater.delivery.signing import SIGNATURE, TIMESTAMP, headers, sign, verify
from slackwater.errors import InvalidInput
from slackwater.settings import DeliverySettings


def test_a_signature_covers_time_and_every_byte() -> None:
    body = b'{"kind":"done"}'
    sent = headers(["new", "old"], 1_000_000, body, delivery="7", kind="done")
    for secret in ("new", "old"):
        assert verify(secret, sent[TIMESTAMP], sent[SIGNATURE], body, now=1_000_010)
    assert not verify("other", sent[TIMESTAMP], sent[SIGNATURE], body, now=1_000_010)
    assert not verify("new", sent[TIMESTAMP], sent[SIGNATURE], body + b" ", now=1_000_010)
    assert not verify("new", "1000001", sent[SIGNATURE], body, now=1_000_010)
    assert not verify("new", sent[TIMESTAMP], sent[SIGNATURE], body, now=1_000_301)
    assert not verify("new", "²", sent[SIGNATURE], body, now=1_000_010)


def test_the_documented_example_is_what_is_sent() -> None:
    """docs/webhooks.md: receivers check their code against it."""
    assert sign("swsec_example", 1767225600, b'{"kind":"done"}') == (
        "v1=7fdc5d6bba842f6ee77f21fca874003cda83474648ff94d93cbb92e2a688313d"
    )


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.com",
        "https://",
        "//example.com",
        "https://user:secret@example.com/",
        "https://example.com/#part",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com/" + "x" * 2048,
        "https://exämple.com/",
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        parse(url)


def test_a_target_calls_the_address_and_tells_the_name() -> None:
    target = parse("https://hooks.example.com:8443/in?a=1")
    assert target.url_at("203.0.113.9") == "https://203.0.113.9:8443/in?a=1"
    assert target.host_header == "hooks.example.com:8443"
    assert parse("http://example.com").host_header == "example.com"
    assert parse("http://[::1]:80/x").url_at("::1") == "http://[::1]:80/x"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_an_address_outside_is_public(address: str) -> None:
    assert public(address)


def test_waits_double_up_to_the_longest_and_are_spread_over_the_upper_half() -> None:
    settings = DeliverySettings()
    assert [wait_seconds(n, settings, lambda: 1.0) for n in (1, 2, 3, 12)] == [5, 10, 20, 3600]
    assert wait_seconds(1, settings, lambda: 0.0) == 2.5
    assert wait_seconds(10_000, settings, lambda: 1.0) == 3600
