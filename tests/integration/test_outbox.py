"""The outbox on a real database and a real receiver: order, repeats, signatures, dead letters, addresses."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from slackwater.claim import Done
from slackwater.delivery.round import Report, deliver
from slackwater.delivery.sending import HttpSender, Sent
from slackwater.delivery.signing import DELIVERY, SIGNATURE, TIMESTAMP, verify
from slackwater.settings import DeliverySettings
from slackwater.store import Store, outbox, webhooks, writing
from slackwater.store.admin import cancel
from slackwater.store.admission import Submit, submit
from slackwater.store.outbox import Letter
from tests.integration.receiver import Receiver
from tests.integration.world import World

SETTINGS = DeliverySettings(tries=3, first_wait_seconds=0.001, longest_wait_seconds=0.001, timeout_seconds=5)
PATIENT = DeliverySettings(tries=3, first_wait_seconds=3600, longest_wait_seconds=3600)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
async def send() -> AsyncIterator[HttpSender]:
    sender = HttpSender(timeout_seconds=5)
    try:
        yield sender
    finally:
        await sender.close()


async def hook(store: Store, receiver: Receiver, name: str = "shop", **more: object) -> str:
    secret = await webhooks.put(store, name, receiver.url, private=True, who="root", **more)  # type: ignore[arg-type]
    assert secret is not None
    return secret


async def one(store: Store, user: str = "alice") -> UUID:
    return (await submit(store, Submit(type="t", user_id=user, payload={}))).task_id


async def states(store: Store, **wanted: str) -> list[str]:
    return [d.state for d in reversed(await outbox.deliveries(store, **wanted))]  # type: ignore[arg-type]


async def test_a_task_s_events_arrive_signed_and_in_their_order(
    store: Store, world: World, receiver: Receiver, send: HttpSender
) -> None:
    secret = await hook(store, receiver)
    await world.worker()
    task = await one(store)
    claimed = await world.try_claim(await world.candidate(task))
    assert claimed is not None
    claim = claimed.claim
    await writing.finish(store, claim, Done({"ok": True}))
    assert await deliver(store, send, SETTINGS) == Report(delivered=2)
    kinds = [got.document["kind"] for got in receiver.got]
    assert kinds == ["queued", "done"]
    for got in receiver.got:
        assert got.document["task"] == str(task)
        assert got.document["user_id"] == "alice"
        assert verify(
            secret, got.headers[TIMESTAMP], got.headers[SIGNATURE], got.body, now=float(got.headers[TIMESTAMP])
        )
    assert await deliver(store, send, SETTINGS) == Report()
    assert len(receiver.got) == 2


async def test_what_fails_is_sent_again_and_holds_back_only_its_own_task(
    store: Store, receiver: Receiver, send: HttpSender
) -> None:
    await hook(store, receiver)
    first = await one(store)
    await cancel(store, first, who="alice")
    receiver.answers = [503]
    assert await deliver(store, send, PATIENT) == Report(failed=1)
    other = await one(store, "bob")
    assert await deliver(store, send, PATIENT) == Report(delivered=1)
    assert [(got.document["task"], got.document["kind"]) for got in receiver.got] == [
        (str(first), "queued"),
        (str(other), "queued"),
    ]
    await outbox.redeliver(store, "shop", int(receiver.got[0].headers[DELIVERY]), who="root")
    assert await deliver(store, send, PATIENT) == Report(delivered=2)
    assert [got.document["kind"] for got in receiver.got[2:]] == ["queued", "cancelled"]
    assert receiver.got[2].body == receiver.got[0].body
    assert receiver.got[2].headers[DELIVERY] == receiver.got[0].headers[DELIVERY]


async def test_a_delivery_that_fails_too_often_is_dead_and_only_an_administrator_sends_it_again(
    store: Store, world: World, receiver: Receiver, send: HttpSender
) -> None:
    await hook(store, receiver)
    task = await one(store)
    receiver.answers = [500] * SETTINGS.tries
    total = Report()
    for _ in range(SETTINGS.tries):
        await world.sql("UPDATE slackwater.delivery SET next_try_at = clock_timestamp()")
        report = await deliver(store, send, SETTINGS)
        total.failed, total.dead = total.failed + report.failed, total.dead + report.dead
    assert total == Report(failed=3, dead=1)
    (dead,) = await outbox.deliveries(store, state="dead")
    assert (dead.tries, dead.last_error) == (3, "status 500")
    await world.sql("UPDATE slackwater.delivery SET next_try_at = clock_timestamp()")
    assert await deliver(store, send, SETTINGS) == Report()
    await cancel(store, task, who="alice")
    assert await deliver(store, send, SETTINGS) == Report(delivered=1), "a dead one holds up no later one"
    assert await outbox.redeliver(store, "shop", dead.id, who="root")
    assert await deliver(store, send, SETTINGS) == Report(delivered=1)
    assert await states(store) == ["delivered", "delivered"]
    assert not await outbox.redeliver(store, "shop", 10**9, who="root")
    audit = await world.sql("SELECT action FROM slackwater.audit ORDER BY id")
    assert [row["action"] for row in audit] == ["webhook", "cancel", "redeliver"]


async def test_two_senders_share_the_work_and_send_nothing_twice(
    store: Store, receiver: Receiver, send: HttpSender
) -> None:
    await hook(store, receiver)
    for number in range(12):
        await one(store, f"user{number}")
    reports = await asyncio.gather(*(deliver(store, send, SETTINGS) for _ in range(3)))
    assert sum(report.delivered for report in reports) == 12
    ids = [got.headers[DELIVERY] for got in receiver.got]
    assert len(set(ids)) == len(ids) == 12


async def test_a_sender_that_died_is_replaced_when_its_time_is_over(store: Store, world: World) -> None:
    await hook(store, receiver := Receiver())
    receiver.close()
    await one(store)
    await outbox.hand_out(store)
    (letter,) = await outbox.take(store, "shop", limit=5, hold_seconds=60)
    assert await outbox.take(store, "shop", limit=5, hold_seconds=60) == []
    await world.sql("UPDATE slackwater.delivery SET next_try_at = clock_timestamp()")
    (again,) = await outbox.take(store, "shop", limit=5, hold_seconds=60)
    assert (again.id, again.tries) == (letter.id, 2)
    await outbox.failed(store, letter, error="late word of the first", wait_seconds=0)
    assert await outbox.take(store, "shop", limit=5, hold_seconds=60) == [], "the second has the word now"
    assert "swsec_" not in repr(again)


async def test_each_webhook_gets_its_kinds_and_none_waits_for_another(store: Store, send: HttpSender) -> None:
    ends, down = Receiver(), Receiver()
    await hook(store, ends, "ends", kinds=["cancelled"])
    await hook(store, down, "down")
    down.close()
    task = await one(store)
    await cancel(store, task, who="alice")
    report = await deliver(store, send, PATIENT)
    assert (report.delivered, report.failed) == (1, 1)
    assert [got.document["kind"] for got in ends.got] == ["cancelled"]
    (failed,) = [d for d in await outbox.deliveries(store, webhook="down") if d.tries]
    assert failed.last_error == "no connection: ConnectError"
    assert await webhooks.remove(store, "down", who="root")
    assert await outbox.deliveries(store, webhook="down") == []
    ends.close()


async def test_rotated_secrets_sign_side_by_side(store: Store, receiver: Receiver, send: HttpSender) -> None:
    old = await hook(store, receiver)
    new = await webhooks.rotate(store, "shop", who="root")
    assert new is not None
    assert await webhooks.put(store, "shop", receiver.url, private=True, who="root") is None
    await one(store)
    await deliver(store, send, SETTINGS)
    (got,) = receiver.got
    for secret in (old, new):
        assert verify(
            secret, got.headers[TIMESTAMP], got.headers[SIGNATURE], got.body, now=float(got.headers[TIMESTAMP])
        )
    third = await webhooks.rotate(store, "shop", who="root")
    assert third not in (old, new)
    assert await webhooks.rotate(store, "none", who="root") is None


async def test_an_inner_address_is_called_only_if_the_administrator_said_so(
    store: Store, receiver: Receiver, send: HttpSender
) -> None:
    await webhooks.put(store, "shop", receiver.url.replace("127.0.0.1", "localhost"), who="root")
    await one(store)
    assert await deliver(store, send, PATIENT) == Report(failed=1)
    assert receiver.got == []
    (delivery,) = await outbox.deliveries(store)
    assert delivery.last_error == "localhost leads to an address that is not public"


async def test_a_redirect_is_a_failure_and_followed_nowhere(store: Store, receiver: Receiver, send: HttpSender) -> None:
    elsewhere = Receiver()
    receiver.answers, receiver.location = [307], elsewhere.url
    await hook(store, receiver)
    await one(store)
    assert await deliver(store, send, PATIENT) == Report(failed=1)
    assert elsewhere.got == []
    (delivery,) = await outbox.deliveries(store)
    assert delivery.last_error == "status 307"
    elsewhere.close()


async def test_without_webhooks_the_outbox_empties_itself(store: Store, world: World) -> None:
    await one(store)

    async def never(letter: Letter) -> Sent:
        raise AssertionError(letter)

    assert await deliver(store, never, SETTINGS) == Report()
    assert await world.sql("SELECT FROM slackwater.outbox WHERE delivered_at IS NULL") == []
    await webhooks.put(store, "late", "https://example.com/", who="root")
    assert await deliver(store, never, SETTINGS) == Report(), "what was before a webhook is not told to it"


async def test_a_later_event_is_never_handed_out_before_an_earlier_one(store: Store, world: World) -> None:
    """Were one to pass over the rows that another holds, a task's second event could be sent alone."""
    await webhooks.put(store, "shop", "https://example.com/", who="root")
    task = await one(store)
    await cancel(store, task, who="alice")
    lock = f"SELECT FROM slackwater.outbox WHERE task_id = '{task}' AND seq = 1 FOR UPDATE"
    async with world.holding(lock):
        handing = asyncio.create_task(outbox.hand_out(store))
        await world.blocked()
        assert await outbox.take(store, "shop", limit=5, hold_seconds=60) == []
    assert await handing == 2
    assert [letter.seq for letter in await outbox.take(store, "shop", limit=5, hold_seconds=60)] == [1]


async def test_hand_outs_wait_for_each_other(store: Store, world: World) -> None:
    await one(store)
    async with world.holding("SELECT pg_advisory_xact_lock(5312199)"):
        handing = asyncio.create_task(outbox.hand_out(store))
        await world.blocked()
        assert not handing.done()
    assert await handing == 1


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of `localhost`, with its key in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here: deliveries over TLS are NOT tested")
    file = tmp_path / "localhost.pem"
    wanted = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    wanted += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key"), "-out", str(file)]
    subprocess.run([openssl, *wanted], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "key").read_text())
    return file


async def test_over_tls_the_name_is_checked_although_an_address_is_called(store: Store, certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    receiver = Receiver(tls=server)
    knows = ssl.create_default_context(cafile=str(certificate))
    named = receiver.url.replace("127.0.0.1", "localhost")
    tries: list[tuple[str, ssl.SSLContext | bool, str | None]] = [
        (named, knows, None),
        (receiver.url, knows, "no connection: ConnectError"),
        (named, True, "no connection: ConnectError"),
    ]
    for number, (url, trust, error) in enumerate(tries):
        await webhooks.put(store, f"hook{number}", url, private=True, who="root")
        await one(store, f"user{number}")
        await outbox.hand_out(store)
        letter, *_ = await outbox.take(store, f"hook{number}", limit=1, hold_seconds=60)
        send = HttpSender(timeout_seconds=5, verify=trust)
        assert await send(letter) == Sent(error)
        await send.close()
    assert len(receiver.got) == 1
    assert receiver.got[0].headers["Host"] == named.removeprefix("https://").removesuffix("/in")
    receiver.close()
