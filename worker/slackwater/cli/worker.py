"""`slackwater worker`: settings come from the environment alone, so that a pod's manifest says it all."""

from __future__ import annotations

from slackwater.init import become_init_if_first


def worker() -> None:
    """Run a worker until it is drained. Exit codes: 0 drained, 2 bad settings, 3 deadline, 4 stubborn code."""
    become_init_if_first()  # before anything that starts a thread
    from slackwater.start import main

    main()
