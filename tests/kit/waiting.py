"""Waiting for a signal with a deadline.

Rule: no test or script sleeps and hopes; it asks until told, or says what it last saw.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimedOut(AssertionError):
    """The awaited thing did not come in time; the message tells what was last seen."""


def until(what: str, seconds: float, ask: Callable[[], T | None], *, every: float = 0.25) -> T:
    """The first truthy answer of `ask` within `seconds`; raises TimedOut with the last answer or error."""
    end = time.monotonic() + seconds
    last: object = None
    while True:
        try:
            answer = ask()
        except (AssertionError, TypeError, ValueError) as mistake:
            raise mistake from None
        except Exception as error:  # a server that is not there yet is a reason to ask again
            answer, last = None, error
        else:
            last = answer
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimedOut(f"after {seconds:g} s still not: {what}; last seen: {last!r}")
        time.sleep(every)
