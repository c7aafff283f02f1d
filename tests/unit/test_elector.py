"""Who leads: two electors over one Lease, with a clock and an API server that the test moves by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from slackwater_operator import errors
from slackwater_operator.elector import Elector
from slackwater_operator.settings import Settings


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class LeaseServer:
    """The API server's Lease with its compare-and-set; `slow` makes each answer take so long, `away` none come."""

    def __init__(self, clock: Clock) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.clock = clock
        self.away = False
        self.lost_replies = 0
        self.slow = 0.0

    async def request(self, method: str, path: str, *, body: Any = None, timeout_seconds: float | None = None) -> Any:
        if self.away:
            raise errors.Unavailable("no answer")
        if method == "GET":
            if self.lease is None:
                raise errors.NotFound("no lease")
            return copy.deepcopy(self.lease)
        stored = copy.deepcopy(body)
        if method == "PUT":
            if self.lease is None or body["metadata"]["resourceVersion"] != str(self.version):
                raise errors.Conflict("another version")
        elif self.lease is not None:
            raise errors.AlreadyExists("there")
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.lease = stored
        self.clock.now += self.slow
        if self.lost_replies:
            self.lost_replies -= 1
            raise errors.Unavailable("the reply was lost")
        return copy.deepcopy(stored)

    async def get(self, path: str) -> Any:
        return await self.request("GET", path)

    async def replace(self, path: str, body: Any, *, timeout_seconds: float | None = None) -> Any:
        return await self.request("PUT", path, body=body)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> LeaseServer:
    return LeaseServer(clock)


def elector(clock: Clock, name: str) -> Elector:
    return Elector(Settings(identity=name), monotonic=clock)


async def attempt(one: Elector, server: LeaseServer, *, keep: bool = False) -> bool:
    return await one._try(server, keep=keep)  # type: ignore[arg-type]


async def test_the_first_one_leads_and_the_second_waits(clock: Clock, server: LeaseServer) -> None:
    a, b = elector(clock, "a"), elector(clock, "b")
    assert await attempt(a, server)
    assert not await attempt(b, server)
    assert a.leads
    assert not b.leads
    a.check()
    with pytest.raises(errors.NotLeader):
        b.check()


async def test_a_lease_is_taken_only_after_it_stood_unchanged_for_its_whole_term(
    clock: Clock, server: LeaseServer
) -> None:
    a, b = elector(clock, "a"), elector(clock, "b")
    await attempt(a, server)
    await attempt(b, server)
    clock.now += 14.9
    assert not await attempt(b, server)
    clock.now += 0.1
    assert await attempt(b, server)
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 1


async def test_the_old_leader_stops_before_the_new_one_may_begin(clock: Clock, server: LeaseServer) -> None:
    a, b = elector(clock, "a"), elector(clock, "b")
    await attempt(a, server)
    await attempt(b, server)
    clock.now += 10
    assert not a.leads
    assert not await attempt(b, server)


async def test_the_term_counts_from_the_sending_not_from_the_answer(clock: Clock, server: LeaseServer) -> None:
    a = elector(clock, "a")
    server.slow = 3
    await attempt(a, server)
    clock.now += 7
    assert not a.leads


async def test_a_renewal_without_answer_is_neither_success_nor_loss(clock: Clock, server: LeaseServer) -> None:
    a = elector(clock, "a")
    await attempt(a, server)
    clock.now += 5
    server.away = True
    assert not await attempt(a, server, keep=True)
    assert a.leads
    server.away = False
    server.lost_replies = 1
    assert not await attempt(a, server, keep=True)
    assert await attempt(a, server, keep=True)
    clock.now += 9
    assert a.leads


async def test_a_deposed_leader_never_takes_the_lease_back_by_renewing(clock: Clock, server: LeaseServer) -> None:
    a, b = elector(clock, "a"), elector(clock, "b")
    await attempt(a, server)
    await attempt(b, server)
    clock.now += 15
    assert await attempt(b, server)
    assert not await attempt(a, server, keep=True)
    clock.now += 100
    assert not await attempt(a, server, keep=True)


async def test_two_that_take_an_expired_lease_at_once_do_not_both_get_it(clock: Clock, server: LeaseServer) -> None:
    a, b, c = (elector(clock, name) for name in "abc")
    await attempt(a, server)
    await attempt(b, server)
    await attempt(c, server)
    clock.now += 15
    read = await server.get("")
    assert await attempt(b, server)
    with pytest.raises(errors.Conflict):
        await server.replace("", read)
    assert not await attempt(c, server)


async def test_a_released_lease_is_taken_at_once(clock: Clock, server: LeaseServer) -> None:
    a, b = elector(clock, "a"), elector(clock, "b")
    await attempt(a, server)
    await a.release(server)  # type: ignore[arg-type]
    assert not a.leads
    assert await attempt(b, server)


async def test_a_restarted_process_is_somebody_else(clock: Clock) -> None:
    assert elector(clock, "pod-1").identity != elector(clock, "pod-1").identity


def test_time_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline_seconds"):
        Settings(lease_seconds=10, renew_deadline_seconds=10)
    with pytest.raises(ValueError, match="third"):
        Settings(lease_request_timeout_seconds=4)
