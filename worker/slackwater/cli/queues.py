"""Commands about queues and the policy."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from slackwater.cli.common import opened_store, output_of, run, who
from slackwater.cli.exits import NotFound
from slackwater.limits import parse_json

_COLUMNS = ("name", "paused", "served", "due", "scheduled", "running", "oldest_due_seconds")
Queue = Annotated[str, typer.Argument(metavar="QUEUE")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Show, pause and resume queues.")
    group.command("list")(list_queues)
    group.command("pause")(pause)
    group.command("resume")(resume)
    app.add_typer(group, name="queue")
    policy = typer.Typer(no_args_is_help=True, help="The limits that apply now.")
    policy.command("show")(show_policy)
    policy.command("set")(set_policy)
    app.add_typer(policy, name="policy")


def list_queues(context: typer.Context) -> None:
    """Waiting and running tasks by queue."""
    from slackwater.store.reading import queue_stats

    async def work() -> Any:
        async with opened_store() as store:
            return await queue_stats(store)

    output_of(context).rows(_COLUMNS, run(work()))


def pause(context: typer.Context, queue: Queue) -> None:
    """No claim from this queue any more; running tasks go on."""
    _pause(context, queue, paused=True)


def resume(context: typer.Context, queue: Queue) -> None:
    """Claim from this queue again."""
    _pause(context, queue, paused=False)


def show_policy(context: typer.Context) -> None:
    from slackwater.store.policies import read_policy

    async def work() -> Any:
        async with opened_store() as store:
            return await read_policy(store)

    output_of(context).one(run(work()).document())


def set_policy(
    context: typer.Context,
    document: Annotated[str, typer.Argument(help="JSON with the fields to change, or - to read it.")],
) -> None:
    """Change fields of the policy; those not named stay. Workers follow within 2 s."""
    from slackwater.errors import InvalidInput
    from slackwater.policy import Policy
    from slackwater.store.policies import read_policy, write_policy

    text = sys.stdin.buffer.read() if document == "-" else document.encode("utf-8", "surrogateescape")
    changes = parse_json(text, field="policy")
    if not isinstance(changes, dict):
        raise InvalidInput("policy", None, "must be an object")

    async def work() -> Any:
        async with opened_store() as store:
            before = (await read_policy(store)).document()
            if unknown := sorted(set(changes) - set(before)):
                raise InvalidInput(unknown[0], sorted(before), "is no field of the policy")
            policy = Policy.read({**before, **changes})
            await write_policy(store, policy, who=who())
            return policy

    output_of(context).one(run(work()).document())


def _pause(context: typer.Context, queue: str, *, paused: bool) -> None:
    from slackwater.store.admin import pause as act

    async def work() -> bool:
        async with opened_store() as store:
            return await act(store, queue, paused=paused, who=who())

    if not run(work()):
        raise NotFound(f"there is no queue {queue}")
    output_of(context).one({"queue": queue, "paused": paused})
