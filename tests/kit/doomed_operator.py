"""The product's operator as a process that dies at a chosen call. Started by `tests.kit.operators`.

Rule: the product is imported and runs unchanged. Its doors to the world (`Kube.request`, the methods of `Leases`, the
sweeps) are wrapped from outside: every call stands in a ledger before it is sent and after it was answered, and at
the chosen one the process sends itself SIGKILL, so that nothing of it tidies up. "after": the server has accepted,
and the operator never learns of it.

The imports take seconds, so they are done once: each line of standard input, a JSON object {env, doom, ledger, log},
is answered with the pid of a fresh operator, forked off. All end with this process.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slackwater_operator import __main__ as product
from slackwater_operator import kube, leases

Call = Callable[..., Awaitable[Any]]
RESOURCES = ("pods", "nodes", "leases", "events", "controllerrevisions", "poddisruptionbudgets", "workerpools")
READS = {"store view", "store handed_back"}
STORE = ("view", "refresh", "cordon", "call_off", "condemn", "vanish", "witness", "take_away", "handed_back")
IN_PASSING = {
    "store refresh", "store sweep", "PATCH workerpools/status", "POST events", "POST pods dry run",
    "POST leases", "PUT leases",
}  # fmt: skip
PR_SET_PDEATHSIG = 1


def kind_of_request(method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> str:
    """What a request is for, in a few words: `PATCH pods drain`."""
    parts = path.strip("/").split("/")
    at = next((i for i in reversed(range(len(parts))) if parts[i] in RESOURCES), None)
    if at is None:
        return f"{method} {path}"
    what, rest = parts[at], parts[at + 1 :]
    if method == "GET":
        return f"GET {what}" if rest else f"LIST {what}"
    if len(rest) > 1:
        what = f"{what}/{rest[1]}"
    if query and "dryRun" in query:
        return f"{method} {what} dry run"
    if method == "PATCH" and parts[at] in ("pods", "controllerrevisions"):
        return f"{method} {what} {_purpose(body)}"
    return f"{method} {what}"


def _purpose(body: Mapping[str, Any]) -> str:
    meta = body.get("metadata") or {}
    marks = meta.get("annotations") or {}
    cause = "slackwater.dev/drain-cause"
    if cause in marks:
        return "drain" if marks[cause] else "call off"
    if "labels" in meta:
        return "protect" if any(meta["labels"].values()) else "unprotect"
    return next((key.rpartition("/")[2] for key in marks), "number")


def mutates(kind: str) -> bool:
    return not kind.startswith(("GET ", "LIST ")) and kind not in READS


def is_step(kind: str) -> bool:
    """A call that brings the pool on, in distinction to what every start and every round repeats."""
    return mutates(kind) and kind not in IN_PASSING


class Ledger:
    """Counts calls by kind, and ends the process at the one that is its doom: {kind, number, when}.

    The kind `step` counts all that bring the pool on.
    """

    def __init__(self, path: str, doom: Mapping[str, Any] | None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._doom = doom
        self._counts: Counter[str] = Counter()

    def begin(self, kind: str) -> dict[str, int]:
        """Counts this call; returns which one it is under each name that it has."""
        mine = [kind, "step"] if is_step(kind) else [kind]
        for name in mine:
            self._counts[name] += 1
        numbers = {name: self._counts[name] for name in mine}
        self.reached(kind, numbers, "before")
        return numbers

    def reached(self, kind: str, numbers: Mapping[str, int], when: str) -> None:
        doom = self._doom
        dies = doom is not None and doom["when"] == when and numbers.get(doom["kind"]) == doom["number"]
        line = {"kind": kind, "number": numbers[kind], "when": when, "dies": dies}
        os.write(self._file, f"{json.dumps(line)}\n".encode())
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)


def watched(call: Call, kind_of: Callable[..., str], ledger: Ledger) -> Call:
    """The same call, with the ledger asked before and after; a refusal is an answer too."""

    @functools.wraps(call)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        kind = kind_of(*args, **kwargs)
        numbers = ledger.begin(kind)
        try:
            return await call(self, *args, **kwargs)
        finally:
            ledger.reached(kind, numbers, "after")

    return wrapper


def wrap(ledger: Ledger) -> None:
    def of_request(method: str, path: str, **more: Any) -> str:
        return kind_of_request(method, path, more.get("body"), more.get("query"))

    def named(kind: str) -> Callable[..., str]:
        return lambda *_, **__: kind

    ports: list[tuple[Any, str, Callable[..., str]]] = [
        (kube.Kube, "request", of_request),
        (leases, "run_due", named("store sweep")),
        *((leases.Leases, name, named(f"store {name}")) for name in STORE),
    ]
    for owner, name, kind_of in ports:
        setattr(owner, name, watched(getattr(owner, name), kind_of, ledger))


def become_operator(order: Mapping[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for mine, std in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(mine, std)
    os.environ.update(order["env"])
    wrap(Ledger(order["ledger"], order["doom"]))
    product.main()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                become_operator(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
