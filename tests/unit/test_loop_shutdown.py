"""How a worker ends is a pure decision: table and properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.shutdown import Drain, ExitCode, Situation, Standing, Verdict, decide
from slackwater.trust import Ending

OPEN = Situation(
    cordoned=False,
    signals=0,
    deadline=None,
    running=2,
    stubborn=0,
    handed_back=False,
)
CORDONED = replace(OPEN, cordoned=True)
TERMINATED = replace(CORDONED, signals=1)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (OPEN, Verdict(True, None, None, "claiming")),
        (CORDONED, Verdict(False, None, None, "finishing what runs")),
        (replace(CORDONED, running=0), Verdict(False, None, None, "idle until told")),
        (replace(CORDONED, deadline=99), Verdict(False, Ending.DRAIN_DEADLINE, None, "finishing what runs")),
        (replace(CORDONED, deadline=101), Verdict(False, None, None, "finishing what runs")),
        (TERMINATED, Verdict(False, None, None, "finishing what runs")),
        (replace(TERMINATED, running=0), Verdict(False, None, ExitCode.DRAINED, "drained")),
        (replace(OPEN, signals=1, running=0), Verdict(False, None, ExitCode.DRAINED, "drained")),
        (
            replace(TERMINATED, deadline=100),
            Verdict(False, Ending.DRAIN_DEADLINE, None, "finishing what runs"),
        ),
        (replace(TERMINATED, signals=2), Verdict(False, Ending.HURRY, None, "finishing what runs")),
        (
            replace(TERMINATED, running=0, handed_back=True),
            Verdict(False, None, ExitCode.DEADLINE, "handed back at the deadline"),
        ),
        (replace(CORDONED, running=0, handed_back=True), Verdict(False, None, None, "idle until told")),
        (replace(CORDONED, condemned=True), Verdict(False, None, None, "finishing what runs")),
        (replace(CORDONED, condemned=True, running=0), Verdict(False, None, ExitCode.DRAINED, "drained")),
        (replace(OPEN, stubborn=1), Verdict(False, None, None, "finishing what runs")),
        (
            replace(OPEN, stubborn=1, running=0),
            Verdict(False, None, ExitCode.STUBBORN, "1 executions did not stop"),
        ),
        (
            replace(TERMINATED, stubborn=1, running=0, handed_back=True),
            Verdict(False, None, ExitCode.STUBBORN, "1 executions did not stop"),
        ),
    ],
)
def test_at_a_hundred_seconds_a_worker_decides(seen: Situation, wanted: Verdict) -> None:
    assert decide(100, seen) == wanted


situations = st.builds(
    Situation,
    cordoned=st.booleans(),
    signals=st.integers(0, 3),
    deadline=st.none() | st.floats(0, 200),
    running=st.integers(0, 3),
    stubborn=st.integers(0, 2),
    handed_back=st.booleans(),
)


@given(situations)
def test_nobody_leaves_while_something_runs_and_nobody_leaves_unasked(seen: Situation) -> None:
    verdict = decide(100, seen)
    if verdict.exit_code is not None:
        assert seen.running == 0
        assert seen.signals or seen.stubborn
    assert not (verdict.claiming and (seen.cordoned or seen.signals or seen.stubborn))
    if verdict.end_all is not None:
        assert seen.running > 0


SEEN = Standing(False, None, None, "Open", ended=False)


def test_the_deadline_is_the_earlier_of_the_cordons_and_the_graces_less_its_reserve() -> None:
    drain = Drain(grace_seconds=120)
    deadlines = [drain.deadline]
    drain.take_in(replace(SEEN, cordoned=True, deadline_in=100.0), now=1000.0)
    deadlines.append(drain.deadline)
    assert drain.signal(1005.0) == 1005.0 + 90
    deadlines.append(drain.deadline)
    drain.take_in(replace(SEEN, cordoned=True, deadline_in=10.0), now=1010.0)
    assert [*deadlines, drain.deadline] == [None, 1100.0, 1095.0, 1020.0]
    assert drain.signal(1050.0) == 1095.0  # a second signal sets no other


def test_a_short_grace_keeps_half_of_itself_for_handing_back() -> None:
    assert Drain(grace_seconds=30).signal(0.0) == 15.0
    assert Drain(grace_seconds=None).signal(0.0) is None


@pytest.mark.parametrize(
    "standing",
    [
        replace(SEEN, cordoned=True, cause="Rollout"),
        replace(SEEN, admission="Hold"),
        replace(SEEN, admission="HoldAndDrain"),
        replace(SEEN, admission="Closed"),
        replace(SEEN, ended=True),
    ],
)
def test_what_a_heartbeat_brings_stops_claiming_and_nothing_else(standing: Standing) -> None:
    drain = Drain(None)
    told = []
    for seen in (SEEN, standing, SEEN):
        drain.take_in(seen, 0.0)
        told.append((drain.claiming, drain.starting))
    assert told == [(True, True), (False, True), (True, True)]


def test_a_drain_that_is_called_off_forgets_its_deadline_and_what_was_handed_back() -> None:
    drain = Drain(None)
    drain.take_in(replace(SEEN, cordoned=True, deadline_in=0.0), 0.0)
    drain.handed_back = True
    drain.take_in(SEEN, 0.0)
    assert (drain.deadline, drain.handed_back) == (None, False)


def test_claims_without_answer_are_waited_for_until_the_deadline() -> None:
    drain = Drain(grace_seconds=120)
    drain.signal(0.0)

    def running(now: float) -> int:
        return drain.situation(now, executions=0, stubborn=0, in_flight=0, in_doubt=1).running

    assert (running(1.0), running(89.0), running(90.0)) == (1, 1, 0)


def test_stubborn_code_is_remembered_and_a_declared_death_makes_the_worker_leave() -> None:
    drain = Drain(None)
    drain.stubborn = True
    assert drain.situation(0.0, executions=1, stubborn=0, in_flight=0, in_doubt=0).stubborn == 1
    assert not drain.starting
    dead = Drain(None)
    dead.take_in(replace(SEEN, ended=True), 0.0)
    verdict = decide(0.0, dead.situation(0.0, executions=0, stubborn=0, in_flight=0, in_doubt=0))
    assert verdict.exit_code is ExitCode.DRAINED
