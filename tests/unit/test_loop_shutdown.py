"""How a worker ends is a pure decision: table and properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.shutdown import ExitCode, Situation, Verdict, decide
from slackwater.trust import Ending

OPEN = Situation(
    cordoned=False,
    signals=0,
    cordon_deadline=None,
    signal_deadline=None,
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
        (replace(CORDONED, cordon_deadline=99), Verdict(False, Ending.DRAIN_DEADLINE, None, "finishing what runs")),
        (replace(CORDONED, cordon_deadline=101), Verdict(False, None, None, "finishing what runs")),
        (TERMINATED, Verdict(False, None, None, "finishing what runs")),
        (replace(TERMINATED, running=0), Verdict(False, None, ExitCode.DRAINED, "drained")),
        (replace(OPEN, signals=1, running=0), Verdict(False, None, ExitCode.DRAINED, "drained")),
        (
            replace(TERMINATED, cordon_deadline=500, signal_deadline=100),
            Verdict(False, Ending.DRAIN_DEADLINE, None, "finishing what runs"),
        ),
        (
            replace(TERMINATED, cordon_deadline=100, signal_deadline=500),
            Verdict(False, Ending.DRAIN_DEADLINE, None, "finishing what runs"),
        ),
        (replace(TERMINATED, signals=2), Verdict(False, Ending.HURRY, None, "finishing what runs")),
        (
            replace(TERMINATED, running=0, handed_back=True),
            Verdict(False, None, ExitCode.DEADLINE, "handed back at the deadline"),
        ),
        (replace(CORDONED, running=0, handed_back=True), Verdict(False, None, None, "idle until told")),
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
    cordon_deadline=st.none() | st.floats(0, 200),
    signal_deadline=st.none() | st.floats(0, 200),
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
