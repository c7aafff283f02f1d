"""The command line's root. Errors end in one line on standard error and the exit code that `exits` says."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from slackwater.cli import dev, doctor, inspect, outbox, queues, serve, tasks
from slackwater.cli.exits import exit_of
from slackwater.cli.output import Format
from slackwater.errors import SlackwaterError

app = typer.Typer(
    name="slackwater",
    help="Long, paid work that is neither lost nor run twice.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(installed_version("slackwater"))
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="How results are printed.", case_sensitive=False)
    ] = Format.AUTO,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Long, paid work that is neither lost nor run twice."""
    context.obj = output


def _output_first(arguments: list[str]) -> list[str]:
    """`-o json` is understood wherever it stands, as people know it from kubectl."""
    first: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument in ("-o", "--output"):
            first += [argument, *[value for value in [next(left, None)] if value is not None]]
        elif argument.startswith("--output="):
            first.append(argument)
        else:
            rest.append(argument)
    return first + rest


dev.register(app)
serve.register(app)
tasks.register(app)
queues.register(app)
outbox.register(app)
inspect.register(app)
doctor.register(app)


def main() -> None:
    """Entry of the console script."""
    try:
        app(_output_first(sys.argv[1:]))
    except SlackwaterError as error:
        typer.echo(f"slackwater: {error}", err=True)
        sys.exit(exit_of(error))
    except KeyboardInterrupt:
        sys.exit(130)
