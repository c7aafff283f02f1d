"""Commands about tasks. They work on the database itself, as an administrator does; each change is audited."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from slackwater.cli.common import TaskId, found, opened_store, output_of, run, task_id, who
from slackwater.cli.output import note
from slackwater.errors import InvalidInput, Refused
from slackwater.limits import parse_json

_CARE = ("task_id", "kind", "state", "tries", "last_error", "next_try_at")
_COLUMNS = ("id", "type", "queue", "state", "progress", "attempts", "created_at", "finished_at")


def register(app: typer.Typer) -> None:
    app.command()(enqueue)
    group = typer.Typer(no_args_is_help=True, help="Show and change single tasks.")
    group.command("show")(show)
    group.command("list")(list_tasks)
    group.command("cancel")(cancel)
    group.command("retry")(retry)
    group.command("finalize")(finalize)
    group.command("adopt")(adopt)
    group.command("outcome")(outcome)
    group.command("aftercare")(aftercare)
    app.add_typer(group, name="task")


def enqueue(  # noqa: PLR0917 - the options of a command
    context: typer.Context,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="The task's type.")],
    payload: Annotated[str, typer.Argument(help="JSON, or - to read it from standard input.")] = "null",
    queue: Annotated[str, typer.Option(help="The queue.")] = "default",
    user: Annotated[str, typer.Option(help="Whose task it is.")] = "cli",
    channel: Annotated[str, typer.Option(help="The provider route that it uses.")] = "",
    priority: Annotated[int, typer.Option(help="-10 to 10; the higher the sooner.")] = 0,
    cost: Annotated[float, typer.Option(help="What it counts in the fair order.")] = 1.0,
    run_at: Annotated[str | None, typer.Option(help="Not before this ISO 8601 instant.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: a repeat gets the first task.")] = None,
) -> None:
    """Submit a task past the gateway, through the same admission."""
    from slackwater.limits import check_run_at
    from slackwater.store.admission import Submit, submit

    text = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    value = parse_json(text, field="payload")
    at = None if run_at is None else check_run_at(run_at, now=datetime.now().astimezone())
    request = Submit(
        type=type_,
        user_id=user,
        payload=value,
        queue=queue,
        channel=channel,
        priority=priority,
        cost=cost,
        run_at=at,
        idempotency_key=key,
    )

    async def work() -> Any:
        async with opened_store() as store:
            return await submit(store, request)

    try:
        accepted = run(work())
    except Refused as refused:
        note(f"slackwater: refused: {refused.code} {json.dumps(dict(refused.detail))}")
        raise
    output_of(context).one({"id": accepted.task_id, "replayed": accepted.replayed})


def show(context: typer.Context, id_: TaskId) -> None:
    """Everything about one task but its secrets."""
    from slackwater.store.reading import task_view

    async def work() -> Any:
        async with opened_store() as store:
            return await task_view(store, task_id(id_))

    output_of(context).one(found(run(work()), "such task"))


def list_tasks(  # noqa: PLR0917 - the options of a command
    context: typer.Context,
    state: Annotated[list[str] | None, typer.Option(help="Only these states.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    before: Annotated[str | None, typer.Option(help="Go on after this id.")] = None,
) -> None:
    """The newest tasks first."""
    from slackwater.claim import TaskState
    from slackwater.store.reading import list_tasks as read

    if unknown := [s for s in state or () if s not in set(TaskState)]:
        raise InvalidInput("state", None, f"{unknown[0]!r} is none of {', '.join(TaskState)}")

    async def work() -> Any:
        async with opened_store() as store:
            last = None if before is None else task_id(before)
            return await read(store, user, states=state or (), queue=queue, limit=limit, before=last)

    output_of(context).rows(_COLUMNS, run(work()))


def cancel(context: typer.Context, id_: TaskId) -> None:
    """Cancel: at once if it waits; a running one stops at its next renewal."""
    from slackwater.store.admin import cancel as act

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, task_id(id_), who=who())

    output_of(context).one({"id": id_, "state": found(run(work()), "such task")})


def retry(context: typer.Context, id_: TaskId) -> None:
    """Run a failed or cancelled task again, through admission, under a new settlement."""
    from slackwater.store.admission import Refusal
    from slackwater.store.retrying import retry as act

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, task_id(id_), who=who())

    result = run(work())
    if isinstance(result, Refusal):
        raise Refused(result.code, {"queued_count": result.queued, "limit": result.limit})
    found(result or None, "such task")
    output_of(context).one({"id": id_, "state": "queued"})


def finalize(
    context: typer.Context,
    id_: TaskId,
    reason: Annotated[str, typer.Option(help="Kept with the task and in the audit.")] = "",
) -> None:
    """End one task past every filter: failed and refunded. For emergencies."""
    from slackwater.store.admin import finalize as act

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, task_id(id_), who=who(), reason=reason)

    output_of(context).one({"id": id_, "state": found(run(work()), "such task")})


def adopt(
    context: typer.Context,
    id_: TaskId,
    result: Annotated[str | None, typer.Argument(help="JSON. Default: the outcome that is on record.")] = None,
    reason: Annotated[str, typer.Option(help="Kept in the audit.")] = "",
) -> None:
    """End an unknown task as done: charged, with its result attached. The counterpart of finalize, which refunds."""
    from slackwater.store.adopting import adopt as act

    value = None if result is None else parse_json(result.encode("utf-8", "surrogateescape"), field="result")

    async def work() -> Any:
        async with opened_store() as store:
            return await act(store, task_id(id_), result=value, who=who(), reason=reason)

    found(run(work()) or None, "such task")
    output_of(context).one({"id": id_, "state": "done"})


def outcome(
    context: typer.Context,
    key: Annotated[str, typer.Argument(help="The submission's idempotency key.")],
    document: Annotated[str, typer.Argument(metavar="OUTCOME", help="JSON: what the provider has on record.")],
) -> None:
    """Record a late result. The first word stands; a task that runs again finds it, an unknown one can be adopted."""
    from slackwater.store.adopting import late_result

    value = parse_json(document.encode("utf-8", "surrogateescape"), field="outcome")

    async def work() -> Any:
        async with opened_store() as store:
            return await late_result(store, key, value, who=who())

    recorded = found(run(work()), "submission with this key")
    output_of(context).one({"task": recorded.task_id, "name": recorded.name, "outcome": recorded.outcome})


def aftercare(
    context: typer.Context,
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="Only this task's, done ones too.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Give this task's all their tries again, at once.")] = False,
) -> None:
    """Hooks of ended tasks that are still to be run, or were given up."""
    from slackwater.store import aftercare as care

    wanted = None if id_ is None else task_id(id_)
    if again and wanted is None:
        raise InvalidInput("ID", None, "is needed with --again")

    async def work() -> Any:
        async with opened_store() as store:
            if again and wanted is not None:
                await care.again(store, wanted, who=who())
            return await care.standing(store, wanted)

    output_of(context).rows(_CARE, run(work()))
