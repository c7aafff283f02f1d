"""What a run amounts to is decided purely from how its code ended and why it was asked to stop."""

from __future__ import annotations

import pytest

from slackwater.claim import Done, Failed, HandedBack
from slackwater.judging import judge
from slackwater.runners import CodeEnd, Raised, Returned, Stopped, Unstarted
from slackwater.trust import Ending

RAISED = Raised("ValueError", "no")


@pytest.mark.parametrize(
    ("ending", "code", "wanted"),
    [
        (None, Returned(1), Done(1)),
        (None, RAISED, Failed("ValueError", "no")),
        (None, Raised("RetryLater", "busy", 7.0), Failed("RetryLater", "busy", 7.0)),
        (None, Stopped(), Failed("Cancelled", "the task's own code cancelled itself")),
        (None, Raised("LeaseLost", "", None, lease_lost=True), None),
        (Ending.DRAIN_DEADLINE, Returned(1), Done(1)),
        (Ending.DRAIN_DEADLINE, Stopped(), HandedBack("DrainDeadline", started=True)),
        (Ending.DRAIN_DEADLINE, RAISED, HandedBack("DrainDeadline", started=True)),
        (Ending.DRAIN_DEADLINE, Raised("LeaseLost", "", None, lease_lost=True), None),
        (Ending.HURRY, Stopped(), HandedBack("SecondSignal", started=True)),
        (Ending.SILENCE, Stopped(), HandedBack("StoreSilent", started=True)),
        (Ending.SILENCE, Returned(1), Done(1)),
        (Ending.HARD_TIMEOUT, Stopped(), Failed("HardTimeout", "ran longer than its type's hard time-out")),
        (Ending.HARD_TIMEOUT, Returned(1), Done(1)),
        (None, Unstarted("no memory"), HandedBack("NotStarted", started=False)),
        (Ending.HARD_TIMEOUT, Unstarted("no memory"), HandedBack("NotStarted", started=False)),
        (Ending.LEASE_LOST, Unstarted("no memory"), None),
        (Ending.LEASE_LOST, Returned(1), None),
        (Ending.LEASE_LOST, Stopped(), None),
        (Ending.LEASE_LOST, RAISED, None),
    ],
)
def test_a_run_amounts_to(ending: Ending | None, code: CodeEnd, wanted: object) -> None:
    assert judge(ending, code) == wanted
