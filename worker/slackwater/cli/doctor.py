"""`slackwater doctor`: looks at a set-up and says what is wrong and how to mend it. Rule: it changes nothing."""

from __future__ import annotations

import typer

from slackwater.cli.common import output_of, run
from slackwater.cli.exits import Exit

_COLUMNS = ("check", "verdict", "found", "mend")


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(context: typer.Context) -> None:
    """Check connections, versions, clocks, settings and permissions; say how to mend each. 1 if something is wrong."""
    from slackwater.cli.checks import examine

    findings = run(examine())
    output_of(context).rows(_COLUMNS, findings)
    if any(finding.wrong for finding in findings):
        raise typer.Exit(Exit.FAILED)
