"""`slackwater worker`: settings come from the environment alone, so that a pod's manifest says it all."""

from __future__ import annotations

import os
import signal

from slackwater.init import become_init_if_first


def worker() -> None:
    """Run a worker until it is drained. Exit codes: 0 drained, 2 bad settings, 3 deadline, 4 stubborn code."""
    become_init_if_first()  # before anything that starts a thread
    # Until the loop has its own handlers there is nothing to drain, and a stop is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: os._exit(0))
    from slackwater.start import main

    main()
