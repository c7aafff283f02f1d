"""Commands that run until they are told to stop, and the migration that comes before them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from slackwater.cli.common import database_url
from slackwater.cli.output import note
from slackwater.errors import StoreUnavailable

_PAUSE_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    @app.command()
    def gateway(
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104 - a container's own
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    ) -> None:
        """Serve the HTTP API until SIGTERM."""
        from slackwater.gateway.server import run

        run(host, port)

    @app.command()
    def worker() -> None:
        """Run tasks until SIGTERM; settings come from the environment."""
        from slackwater.cli.worker import worker as run_worker

        run_worker()

    @app.command()
    def migrate(
        wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the database.")] = 120.0,
    ) -> None:
        """Bring the database's tables to this release. May run any number of times, also at once."""
        _migrate(database_url(), wait)


def _migrate(url: str, wait: float) -> None:
    from sqlalchemy.exc import DBAPIError, OperationalError

    from slackwater import migrations

    deadline = time.monotonic() + wait
    while True:
        try:
            before = migrations.upgrade(url)
        except OperationalError as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise StoreUnavailable(f"the database gave no answer within {wait:g} s: {_cause(error)}") from None
            note(f"waiting for the database ({_cause(error)}), {left:.0f} s left")
            time.sleep(min(_PAUSE_SECONDS, left))
        except DBAPIError as error:
            raise StoreUnavailable(f"the tables could not be changed: {_cause(error)}") from None
        else:
            after = migrations.head()
            note(f"the tables are at {after}" + ("" if before == after else f" (before: {before or 'none'})"))
            return


def _cause(error: Exception) -> str:
    """The driver's first line, without the statement and without addresses in a URL."""
    from slackwater.logging import redact

    return redact(str(getattr(error, "orig", error)).strip().splitlines()[0])
