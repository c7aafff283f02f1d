"""`kubectl slackwater`: the commands. Rule: results on standard output, remarks and errors on standard error.

Exit codes: 0 done, 1 failed, 2 usage, 5 not found (docs/exit-codes.md).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater_operator import errors, reading
from slackwater_operator.cli import change, history, tree
from slackwater_operator.cli.survey import Raw, rollout_of
from slackwater_operator.cli.why import why as explain
from slackwater_operator.cli.words import Json

if TYPE_CHECKING:
    from slackwater_operator.cli.door import Door

_LOOK_AGAIN_SECONDS = 2.0
_TRIES = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KINDS = ("pod", "pods", "wp", "workerpool", "workerpools")
_FIRST = ("-n", "--namespace", "--context", "-o", "--output")


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 5
    INTERRUPTED = 130


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Options:
    namespace: str | None = None
    context: str | None = None
    output: Format = Format.TEXT


app = typer.Typer(
    help="Pools of workers: what they do, what they wait for, and what you wish of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="-n, --context and -o may stand anywhere, as with kubectl.",
)


def _name(value: str) -> str:
    """As a path's part it must be a name; `pod/NAME`, as kubectl prints it, is understood."""
    kind, slash, rest = value.partition("/")
    found = rest if slash and kind.split(".")[0] in _KINDS else value
    if not _NAME.fullmatch(found):
        raise typer.BadParameter(f"{value[:80]!r} is no name")
    return found


def _version(value: bool) -> None:
    if value:
        typer.echo(installed_version("slackwater"))
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", help="Instead of the context's own.", callback=lambda n: n and _name(n)),
    ] = None,
    kube_context: Annotated[str | None, typer.Option("--context", help="The kubeconfig context.")] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="text or json.")] = Format.TEXT,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Pools of workers: what they do, what they wait for, and what you wish of them."""
    context.obj = Options(namespace, kube_context, output)


Pool = Annotated[str, typer.Argument(metavar="POOL", help="The WorkerPool's name.", callback=_name)]
PodName = Annotated[str, typer.Argument(metavar="POD", help="The pod's name.", callback=_name)]


@app.command()
def status(
    context: typer.Context,
    pool: Pool,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print it anew whenever it changes.")] = False,
) -> None:
    """The pool, its revisions and their pods as a tree."""

    async def look(door: Door) -> tuple[Json, list[Json]]:
        found = await door.pool(pool)
        return found, await door.pods(pool)

    def show(found: Json, pods: list[Json]) -> str:
        if _options(context).output is Format.JSON:
            return _json(tree.document(found, pods), indent=None if watch else 2)
        return "\n".join(tree.lines(found, pods, _now()))

    async def work(door: Door) -> None:
        found, pods = await look(door)
        if not watch:
            _print(show(found, pods))
            return
        last: Json = {}
        while True:
            facts = tree.document(found, pods)
            if facts != last:  # ages alone are no news
                if last and _options(context).output is Format.TEXT:
                    _print("")
                _print(show(found, pods))
                last = facts
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            try:
                found, pods = await look(door)
            except errors.Unavailable as error:
                _note(f"{error}; trying again")

    _run(context, work)


@app.command()
def why(context: typer.Context, pod: PodName) -> None:
    """Why is this pod still here? What it waits for, and who has to move."""

    async def work(door: Door) -> None:
        body = await _workers_pod(door, pod)
        owner = await door.pool_of(body)
        answer = explain(body, owner, _now())
        if _options(context).output is Format.JSON:
            facts = {"pod": pod, "namespace": door.namespace, "because": answer.because.value, "text": answer.text}
            _print(_json({**facts, "pool": owner["metadata"]["name"] if owner else None}))
        else:
            _print(answer.text)

    _run(context, work)


@app.command()
def pause(context: typer.Context, pool: Pool) -> None:
    """Hold the rollout where it is; replacing, scaling and drains of nodes go on."""
    _wish(context, pool, lambda found: change.paused(found, True))


@app.command()
def resume(context: typer.Context, pool: Pool) -> None:
    """Go on with the rollout."""
    _wish(context, pool, lambda found: change.paused(found, False))


@app.command()
def restart(context: typer.Context, pool: Pool) -> None:
    """Roll the pool with the template that it has; no running task is interrupted."""
    _wish(context, pool, lambda found: change.restart(found, _now()), rolls=True)


@app.command()
def rollback(
    context: typer.Context,
    pool: Pool,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="REVISION", help="A number or a name of `history`; else the last that completed."),
    ] = None,
) -> None:
    """Write an earlier revision back into the spec; the operator rolls the pool to it."""

    async def work(door: Door) -> None:
        found = await door.pool(pool)
        chosen = change.target(found, await door.revisions(found), to)
        for left in reversed(range(_TRIES)):
            wanted = change.rollback(found, chosen)
            try:
                if wanted.patch is not None:
                    await door.patch_pool(pool, wanted.patch)
                break
            except errors.Conflict:
                before, found = found, await door.pool(pool)
                if not left or before["metadata"]["generation"] != found["metadata"]["generation"]:
                    raise change.Impossible(
                        f"{pool} was changed by somebody else meanwhile; look, and repeat"
                    ) from None
        _done(context, door, wanted, {"pool": pool, "revision": chosen.name, "number": chosen.number})
        _remind(found)

    _run(context, work)


@app.command()
def drain(context: typer.Context, pod: PodName) -> None:
    """Let this pod finish its tasks and go; the pool puts another in its place."""

    async def work(door: Door) -> None:
        await _annotate(context, door, pod, change.drain)

    _run(context, work)


@app.command()
def undrain(context: typer.Context, pod: PodName) -> None:
    """Call the drain of this pod off."""

    async def work(door: Door) -> None:
        before = await _annotate(context, door, pod, change.undrain)
        remark = change.comes_back(reading.pod(before))
        if remark:
            _note(remark)

    _run(context, work)


@app.command("history")
def history_(context: typer.Context, pool: Pool) -> None:
    """The pool's revisions, the newest first; the star marks what the spec says now."""

    async def work(door: Door) -> None:
        found = await door.pool(pool)
        revisions = await door.revisions(found)
        if _options(context).output is Format.JSON:
            _print(_json(history.document(found, revisions)))
        else:
            _print("\n".join(history.lines(found, revisions, _now())))

    _run(context, work)


def _wish(context: typer.Context, pool: str, wish: Callable[[Raw], change.Change], *, rolls: bool = False) -> None:
    async def work(door: Door) -> None:
        found = await door.pool(pool)
        wanted = wish(found)
        if wanted.patch is not None:
            await door.patch_pool(pool, wanted.patch)
        _done(context, door, wanted, {"pool": pool})
        if rolls:
            _remind(found)

    _run(context, work)


async def _annotate(context: typer.Context, door: Door, name: str, wish: Callable[..., change.Change]) -> Json:
    body = await _workers_pod(door, name)
    wanted = wish(reading.pod(body))
    if wanted.patch is not None:
        await door.patch_pod(name, wanted.patch)
    _done(context, door, wanted, {"pod": name})
    return body


async def _workers_pod(door: Door, name: str) -> Json:
    body = await door.pod(name)
    if reading.owner_uid(body) is None:
        raise change.Impossible(f"pod {name} belongs to no WorkerPool")
    return body


def _remind(pool: Raw) -> None:
    if rollout_of(pool).get("paused"):
        _note("the rollout is paused: nothing rolls before `kubectl slackwater resume`")


def _done(context: typer.Context, door: Door, wanted: change.Change, facts: Json) -> None:
    if _options(context).output is Format.JSON:
        made = {**facts, "namespace": door.namespace, "changed": wanted.patch is not None, "message": wanted.said}
        _print(_json(made))
    else:
        _print(wanted.said)


def _run(context: typer.Context, work: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    options = _options(context)

    async def all_of_it() -> None:
        from slackwater_operator.cli.door import opened  # the client is heavy, and --help needs none

        async with opened(options.context, options.namespace) as door:
            await work(door)

    asyncio.run(all_of_it())


def _options(context: typer.Context) -> Options:
    found = context.find_root().obj
    return found if isinstance(found, Options) else Options()


def _now() -> datetime:
    return datetime.now(UTC)


def _json(value: Any, indent: int | None = 2) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _print(text: str) -> None:
    if not sys.stdout.isatty() or text.startswith(("{", "[")):
        typer.echo(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for line in text.split("\n"):
        console.print(Text(line, style=tree.style(line)))  # Text: what was stored is no markup


def _note(message: str) -> None:
    typer.echo(message, err=True)


def options_first(arguments: list[str]) -> list[str]:
    """Options of all commands are understood wherever they stand, as people know it from kubectl."""
    first: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument in _FIRST:
            first += [argument, *[value for value in [next(left, None)] if value is not None]]
        elif argument.startswith(tuple(f"{name}=" for name in _FIRST if name.startswith("--"))):
            first.append(argument)
        elif argument[:2] in ("-n", "-o") and len(argument) > 2:
            first += [argument[:2], argument[2:].removeprefix("=")]
        else:
            rest.append(argument)
    return first + rest


def exit_of(error: Exception) -> Exit:
    """The code that a command ends with after this error."""
    from slackwater_operator.cli.door import BadConfig

    match error:
        case errors.NotFound() | change.NoSuchRevision():
            return Exit.NOT_FOUND
        case BadConfig():
            return Exit.USAGE
        case _:
            return Exit.FAILED


def main() -> None:
    """Entry of the console script `kubectl-slackwater`, which kubectl finds as `kubectl slackwater`."""
    from slackwater_operator.cli.door import BadConfig

    try:
        app(options_first(sys.argv[1:]), prog_name="kubectl slackwater")
    except (errors.OperatorError, change.NoSuchRevision, change.Impossible, BadConfig) as error:
        _note(f"kubectl slackwater: {error}")
        sys.exit(exit_of(error))
    except BrokenPipeError:
        sys.exit(Exit.FAILED)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
