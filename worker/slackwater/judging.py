"""What a run amounts to, from how its code ended and why it was asked to stop. Pure."""

from __future__ import annotations

from slackwater.claim import Done, Failed, HandedBack, Outcome
from slackwater.limits import clean_error_text
from slackwater.runners import CodeEnd, Raised, Returned, Stopped, Unstarted
from slackwater.trust import Ending


def judge(ending: Ending | None, code: CodeEnd) -> Outcome | None:
    """What the run amounts to; None: its claim is lost, and so is whatever it did."""
    if ending is Ending.LEASE_LOST or (isinstance(code, Raised) and code.lease_lost):
        return None
    if isinstance(code, Returned):
        return Done(code.value)  # it was asked to stop and ended well before it did: its work is paid for
    if isinstance(code, Unstarted):
        return HandedBack("NotStarted", started=False)
    if ending is Ending.HARD_TIMEOUT:
        return Failed("HardTimeout", "ran longer than its type's hard time-out")
    if ending is not None:
        return HandedBack(ending.value, started=True)
    if isinstance(code, Stopped):
        return Failed("Cancelled", "the task's own code cancelled itself")
    return Failed(code.error_type, clean_error_text(code.message), code.retry_after)
