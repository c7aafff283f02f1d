"""`slackwater dev`: gateway, worker, PostgreSQL and Valkey in one command, with tasks reloaded as they are saved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from slackwater.errors import InvalidInput


def register(app: typer.Typer) -> None:
    app.command("dev")(dev)


def dev(  # noqa: PLR0917 - the options of a command
    modules: Annotated[str, typer.Argument(metavar="MODULE[,MODULE]", help="Modules whose tasks are served.")],
    data: Annotated[
        Path | None, typer.Option(help="Keep the database in this folder. Default: a temporary one.", file_okay=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the gateway.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port. Default: 8080, else a free one.")] = None,
    queues: Annotated[str, typer.Option(help="Queues that are served, separated by commas.")] = "default",
    concurrency: Annotated[int, typer.Option(min=1, max=100, help="Tasks at once.")] = 4,
    reload: Annotated[bool, typer.Option(help="Start a new worker when the code changes.")] = True,
) -> None:
    """Serve tasks while you write them; Ctrl-C stops everything and leaves nothing."""
    names = tuple(name.strip() for name in modules.split(",") if name.strip())
    if not names:
        raise InvalidInput("MODULE", None, "must name at least one")
    from slackwater.dev.run import Options, develop

    options = Options(names, data, host, port, queues, concurrency, reload)
    raise typer.Exit(asyncio.run(develop(options, typer.echo)))
