"""The command `slackwater`. Rule: commands parse and print; what they do is in the package.

Exit codes are those of `slackwater.cli.exits`, listed in docs/exit-codes.md.
"""

from slackwater.cli.main import main

__all__ = ["main"]
