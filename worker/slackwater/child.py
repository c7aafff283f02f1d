"""The process of one plain-function task: `python -m slackwater.child FD PARENT`.

Rule: it lives no longer than its worker (death signal, and end of file on the pipe), holds no connection of the
product, and every effect is a message to the parent. The parent ends its whole process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import Any, NoReturn

from slackwater import frames
from slackwater.claim import Claim
from slackwater.errors import LeaseLost
from slackwater.logging import configure
from slackwater.sdk import Cancelled, SyncContext
from slackwater.task import load

PR_SET_PDEATHSIG = 1


def tie_to(parent: int) -> None:
    """Die when the worker dies, by a signal that no code of the task can catch."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the call
        die()


def die() -> NoReturn:
    """End this process group: what the task started must not outlive its claim."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class PipeBridge:
    """A call is a numbered message; a reading thread hands out the answers and ends the process at end of file."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._reader = pipe.makefile("rb")
        self._send_lock = threading.Lock()
        self._answers: dict[int, SimpleQueue[frames.Message]] = {}
        self._last = 0
        self._cancelled = threading.Event()
        self.deadline: float | None = None
        self.claim: Claim | None = None

    def receive(self) -> frames.Message:
        head = self._reader.read(frames.HEAD.size)
        if len(head) < frames.HEAD.size:
            die()
        return frames.decode(self._reader.read(frames.size(head)))

    def send(self, message: frames.Message) -> None:
        data = frames.encode(message)
        with self._send_lock:
            try:
                self._pipe.sendall(data)
            except OSError:
                die()

    def listen(self) -> None:
        threading.Thread(target=self._listen, name="slackwater-pipe", daemon=True).start()

    def _listen(self) -> None:
        while True:
            message = self.receive()
            match message["kind"]:
                case "answer":
                    self._answers[message["id"]].put(message)
                case "deadline":
                    self.deadline = message["at"]
                case "cancel":
                    self._cancelled.set()

    def call(self, effect: str, *arguments: Any) -> Any:
        if self.cancelled and effect != "checkpoint":  # a checkpoint is what a cancelled run is still asked for
            raise Cancelled
        answer: SimpleQueue[frames.Message] = SimpleQueue()
        with self._send_lock:
            self._last += 1
            number = self._last
        self._answers[number] = answer
        self.send({"kind": "call", "id": number, "effect": effect, "arguments": list(arguments)})
        message = answer.get()
        del self._answers[number]
        match message.get("error"):
            case None:
                return frames.value_from_json(message.get("value"))
            case {"type": "LeaseLost"}:
                assert self.claim is not None
                raise LeaseLost(self.claim)
            case {"type": "Cancelled"}:
                raise Cancelled
            case {"type": kind, "message": text}:
                raise RuntimeError(f"{kind}: {text}")
        raise RuntimeError(f"not an answer: {message!r}")

    def post(self, effect: str, *arguments: Any) -> None:
        self.send({"kind": "post", "effect": effect, "arguments": list(arguments)})

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def deadline_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


def run(bridge: PipeBridge) -> frames.Message:
    """Run the function; what it did is the last message."""
    start = bridge.receive()
    configure(bound=start["log"])
    bridge.deadline = start["deadline"]
    bridge.listen()
    declared = load(start["modules"]).get(start["run"]["type"])
    if declared is None:
        return _raised(LookupError(f"no task type {start['run']['type']!r} in {start['modules']}"))
    context = SyncContext(frames.run_from_json(start["run"]), bridge)
    bridge.claim = context.claim
    try:
        returned = {"kind": "returned", "value": declared.function(context, start["payload"])}
    except BaseException as error:  # whatever ended it is the outcome, SystemExit included
        return _raised(error)
    try:
        frames.encode(returned)
    except (TypeError, ValueError) as error:
        return {**_raised(error), "type": "InvalidResult"}
    return returned


def _raised(error: BaseException) -> frames.Message:
    if isinstance(error, Cancelled):
        return {"kind": "cancelled"}
    retry_after = getattr(error, "retry_after", None)
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "message": str(error)[:8192],
        "retry_after": retry_after if isinstance(retry_after, int | float) else None,
        "lease_lost": isinstance(error, LeaseLost),
        "traceback": "".join(traceback.format_exception(error))[-8192:],
    }


def main(arguments: list[str]) -> None:
    descriptor, parent = int(arguments[0]), int(arguments[1])
    tie_to(parent)
    bridge = PipeBridge(socket.socket(fileno=descriptor))
    try:
        end = run(bridge)
    except Exception as error:  # a module that can't be imported is the task's failure, with its reason
        end = _raised(error)
    sys.stdout.flush()
    sys.stderr.flush()
    bridge.send(end)


if __name__ == "__main__":
    main(sys.argv[1:])
