"""The console command's first lines, before anything heavy is imported.

Rule: a SIGTERM is never lost. The kernel drops signals that process 1 has no handler for, and importing takes seconds
on a busy node; a pod deleted in that time would then wait for its whole grace period. Until a command has handlers of
its own there is nothing to drain, so the first answer to a signal is to leave well.
"""

from __future__ import annotations

import os
import signal
import sys

from slackwater.init import become_init_if_first


def main() -> None:
    """What the script `slackwater` runs."""
    first = os.getpid() == 1
    if first:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        if sys.argv[1:2] == ["worker"]:
            become_init_if_first()  # the child keeps the handlers until the worker has its own
    from slackwater.cli import main as command

    command()


if __name__ == "__main__":
    main()
