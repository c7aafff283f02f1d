"""The console command's first lines. Rule: a SIGTERM that comes while the heavy imports run is not lost.

The kernel drops signals that process 1 has no handler for. Before the operator leads there is nothing to hand over.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """What the script `slackwater-operator` runs."""
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    from slackwater_operator.__main__ import main as run

    run()
