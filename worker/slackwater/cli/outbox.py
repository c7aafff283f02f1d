"""Commands about webhooks and what goes out to them. Rule: a secret is printed once, when it is made."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from slackwater.cli.common import found, opened_store, output_of, run, task_id, who
from slackwater.cli.exits import NotFound

_HOOKS = ("name", "url", "kinds", "private", "created_at")
_DELIVERIES = ("id", "webhook", "task_id", "seq", "kind", "state", "tries", "last_error", "next_try_at")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name.")]


class State(StrEnum):
    OPEN = "open"
    DELIVERED = "delivered"
    DEAD = "dead"


def register(app: typer.Typer) -> None:
    hooks = typer.Typer(no_args_is_help=True, help="Where events are delivered.")
    hooks.command("put")(put)
    hooks.command("list")(list_webhooks)
    hooks.command("rotate")(rotate)
    hooks.command("remove")(remove)
    app.add_typer(hooks, name="webhook")
    outbox = typer.Typer(no_args_is_help=True, help="Show deliveries, and send one again.")
    outbox.command("list")(list_deliveries)
    outbox.command("redeliver")(redeliver)
    app.add_typer(outbox, name="outbox")


def put(
    context: typer.Context,
    name: Name,
    url: Annotated[str, typer.Argument(help="https:// or http://.")],
    kind: Annotated[list[str] | None, typer.Option(help="Only these events. Default: all.")] = None,
    private: Annotated[bool, typer.Option(help="It may lead to an address that is not public.")] = False,
) -> None:
    """Make a webhook, or change one. Prints the secret of a new one, this once."""
    from slackwater.store.webhooks import put as act

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, name, url, kinds=kind or (), private=private, who=who())

    secret = run(work())
    output_of(context).one({"name": name} if secret is None else {"name": name, "secret": secret})


def list_webhooks(context: typer.Context) -> None:
    """All webhooks, without their secrets."""
    from slackwater.store.webhooks import webhooks

    async def work() -> Any:
        async with opened_store() as store:
            return await webhooks(store)

    output_of(context).rows(_HOOKS, run(work()))


def rotate(context: typer.Context, name: Name) -> None:
    """A new secret. The one before signs beside it until the next rotation."""
    from slackwater.store.webhooks import rotate as act

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, name, who=who())

    output_of(context).one({"name": name, "secret": found(run(work()), f"webhook {name}")})


def remove(context: typer.Context, name: Name) -> None:
    """Remove a webhook with its deliveries, sent or not."""
    from slackwater.store.webhooks import remove as act

    async def work() -> bool:
        async with opened_store() as store:
            return await act(store, name, who=who())

    if not run(work()):
        raise NotFound(f"there is no webhook {name}")
    output_of(context).one({"name": name, "removed": True})


def list_deliveries(
    context: typer.Context,
    webhook: Annotated[str | None, typer.Option(help="Only this webhook's.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task's.")] = None,
    state: Annotated[State | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
) -> None:
    """The newest deliveries first."""
    from slackwater.store.outbox import deliveries

    async def work() -> Any:
        wanted = None if task is None else task_id(task)
        async with opened_store() as store:
            return await deliveries(store, webhook=webhook, task_id=wanted, state=state, limit=limit)

    output_of(context).rows(_DELIVERIES, run(work()))


def redeliver(
    context: typer.Context,
    webhook: Annotated[str, typer.Argument(help="The webhook's name.")],
    delivery: Annotated[int, typer.Argument(help="The delivery's id, as `outbox list` shows it.")],
) -> None:
    """Send one again, delivered or dead, with all its tries before it."""
    from slackwater.store.outbox import redeliver as act

    async def work() -> bool:
        async with opened_store() as store:
            return await act(store, webhook, delivery, who=who())

    if not run(work()):
        raise NotFound(f"webhook {webhook} has no delivery {delivery}")
    output_of(context).one({"webhook": webhook, "id": delivery, "state": "open"})
