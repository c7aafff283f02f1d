"""The worker's half of a plain function's process: start it, serve its effects, end its whole group.

Rule: the child holds no connection of the product; its effects are calls over one pipe, made here under the claim. It
inherits the pod's lock, so the lock is free only when the last of them is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import structlog

from slackwater import frames
from slackwater.errors import LeaseLost
from slackwater.logging import logger
from slackwater.runners import CodeEnd, Raised, Returned, Stopped, Unstarted
from slackwater.sdk import Cancelled, Effects, Run
from slackwater.task import TaskType

log = logger("slackwater.run")
EXIT_SECONDS = 2.0
"""For its exit handlers after the last message; then the group is killed."""
_EFFECTS = frozenset({"progress", "event", "checkpoint", "intend", "store_reference", "resolve", "confirm"})


class ProcessRunner:
    def __init__(
        self,
        declared: TaskType,
        run: Run,
        payload: Any,
        effects: Effects,
        *,
        modules: Sequence[str],
        inherit: Sequence[int] = (),
        deadline: float | None = None,
    ) -> None:
        self._start: frames.Message = {
            "modules": [*modules, declared.function.__module__],
            "run": frames.run_to_json(run),
            "payload": payload,
            "deadline": deadline,
            "log": structlog.contextvars.get_contextvars(),
        }
        self._effects = effects
        self._inherit = tuple(inherit)
        self._pid: int | None = None
        self._killed = False
        self._stopping = False
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> CodeEnd:
        ours, theirs = socket.socketpair()
        try:
            process = await self._spawn(theirs)
        except OSError as error:  # no memory, no process, no descriptor left
            ours.close()
            return Unstarted(f"{type(error).__name__}: {error}")
        self._pid = process.pid
        if self._killed:
            self.kill()
        log.debug("task process started", pid=process.pid)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            end = await self._serve(reader)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_SECONDS if end else 0.2)
        finally:
            self._kill_group()
            code = await process.wait()
            self._kill_group()  # what its code left behind in the group
            self._pid = None
            self._writer.close()
        return self._ended(end, code)

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        with theirs:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "slackwater.child",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *self._inherit),
                process_group=0,
            )

    async def _serve(self, reader: asyncio.StreamReader) -> frames.Message | None:
        """Until its last message, or the end of the pipe."""
        self._send(self._start)
        if self._stopping:  # asked before there was a pipe to tell it
            self.stop()
        calls: set[asyncio.Task[None]] = set()
        try:
            while True:
                message = await _receive(reader)
                match message["kind"]:
                    case "call":
                        call = asyncio.create_task(self._answer(message))
                        calls.add(call)
                        call.add_done_callback(calls.discard)
                    case "post":
                        self._effects.heartbeat(*message["arguments"])
                    case _:
                        return message
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            for call in calls:  # nobody is left to answer
                call.cancel()

    async def _answer(self, message: frames.Message) -> None:
        reply: frames.Message = {"kind": "answer", "id": message["id"]}
        try:
            if message["effect"] not in _EFFECTS:
                raise LookupError(f"no such effect: {message['effect']}")
            value = await getattr(self._effects, message["effect"])(*message["arguments"])
            reply["value"] = frames.value_to_json(value)
        except (Cancelled, asyncio.CancelledError):
            reply["error"] = {"type": "Cancelled", "message": ""}
        except LeaseLost as error:
            reply["error"] = {"type": "LeaseLost", "message": str(error)}
        except Exception as error:  # the task's code raises it, there
            reply["error"] = {"type": type(error).__name__, "message": str(error)}
        self._send(reply)

    def _send(self, message: frames.Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frames.encode(message))

    def tell_deadline(self, at: float) -> None:
        """Monotonic time is the same clock in both processes."""
        self._send({"kind": "deadline", "at": at})

    def stop(self) -> None:
        self._stopping = True
        self._send({"kind": "cancel"})

    def kill(self) -> None:
        self._killed = True
        self._kill_group()

    def _kill_group(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def _ended(self, end: frames.Message | None, code: int) -> CodeEnd:
        match end:
            case {"kind": "returned", "value": value}:
                return Returned(value)
            case {"kind": "cancelled"}:
                return Stopped()
            case {"kind": "raised", "type": kind, "message": text, "retry_after": retry, "lease_lost": lost, **more}:
                log.info("task raised", traceback=more["traceback"])
                return Raised(kind, text, retry, lost)
        if self._killed:
            return Stopped()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Raised("ProcessDied", f"the task's process ended by {how}")


async def _receive(reader: asyncio.StreamReader) -> frames.Message:
    length = frames.size(await reader.readexactly(frames.HEAD.size))
    return frames.decode(await reader.readexactly(length))
