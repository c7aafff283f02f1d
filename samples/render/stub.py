"""A provider that takes its time and money: `python -m samples.render.stub --port 8090`.

Rule: it is the judge. Every call is logged as it came, with the claim it carried; one key is charged once, however
often it is asked; nothing is forgotten while it runs. Standard library only.

    POST /renders        {key, task, epoch, worker, seconds, ...} -> {reference, state}; the same key, the same render
    GET  /renders/REF    ?task=&epoch=&worker= -> {state: running|done, progress, result}
    POST /trace          {task, epoch, worker, what: start|end, ...}
    GET  /log  /charges  every call in order; charges by key
    POST /faults         {what: submit|poll|trace, times, delay_seconds?, status?, retry_after?, create?, task?}:
                         the next calls wait, or are refused with that status;
                         `create`: the render is made all the same and only the answer is lost
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


@dataclass
class Fault:
    what: str
    times: int = 1
    delay_seconds: float = 0.0
    status: int | None = None
    retry_after: float | None = None
    create: bool = False
    task: str | None = None


@dataclass
class Render:
    reference: str
    key: str
    seconds: float
    created: float

    def state(self, now: float) -> Object:
        progress = 1.0 if self.seconds <= 0 else min(1.0, (now - self.created) / self.seconds)
        if progress < 1:
            return {"reference": self.reference, "state": "running", "progress": round(progress, 3)}
        result = {"frame": self.reference, "seconds": self.seconds}
        return {"reference": self.reference, "state": "done", "progress": 1.0, "result": result}


@dataclass
class Refusal(Exception):
    status: int
    retry_after: float | None


@dataclass
class Books:
    """What was asked, made and charged. One lock: the order of the log is the order of arrival."""

    log: list[Object] = field(default_factory=list)
    renders: dict[str, Render] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, asked: Object, **more: Any) -> Object:
        entry = {
            "what": what,
            "at": time.time(),
            "task": asked.get("task"),
            "epoch": int(asked.get("epoch") or 0),
            "worker": asked.get("worker"),
            "key": asked.get("key"),
            "charged": False,
            **more,
        }
        with self.lock:
            self.log.append(entry)
        return entry

    def fault(self, what: str, task: str | None) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.what == what and fault.times > 0 and fault.task in (None, task):
                    fault.times -= 1
                    return fault
        return None

    def submit(self, asked: Object) -> tuple[Object, bool]:
        """The render of that key, and whether it was made, and so charged, by this call."""
        with self.lock:
            found = self.renders.get(asked["key"])
            if found is not None:
                return found.state(time.time()), False
            made = Render(f"r-{len(self.renders) + 1}", asked["key"], float(asked.get("seconds", 1)), time.time())
            self.renders[asked["key"]] = made
            return made.state(time.time()), True

    def render(self, reference: str) -> Render | None:
        with self.lock:
            return next((r for r in self.renders.values() if r.reference == reference), None)

    def charges(self) -> dict[str, int]:
        charges: dict[str, int] = {}
        with self.lock:
            for entry in self.log:
                if entry["charged"]:
                    charges[entry["key"]] = charges.get(entry["key"], 0) + 1
        return charges


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    books: Books

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        match urlsplit(self.path).path:
            case "/renders":
                self._guarded(lambda: self._submit(asked))
            case "/trace":
                self._guarded(lambda: self._trace(asked))
            case "/faults":
                with self.books.lock:
                    self.books.faults.append(Fault(**asked))
                self._answer(200, {})
            case _:
                self._answer(404, {"error": "no such path"})

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path.strip("/").split("/"):
            case ["renders", reference]:
                asked = {name: values[0] for name, values in parse_qs(url.query).items()}
                self._guarded(lambda: self._poll(reference, asked))
            case ["log"]:
                with self.books.lock:
                    log = list(self.books.log)
                self._answer(200, log)
            case ["charges"]:
                self._answer(200, self.books.charges())
            case ["healthz"]:
                self._answer(200, {"ok": True})
            case _:
                self._answer(404, {"error": "no such path"})

    def _submit(self, asked: Object) -> Object:
        fault = self._suffer("submit", asked)
        answer, charged = self.books.submit(asked)
        self.books.note("submit", asked, charged=charged, reference=answer["reference"])
        if fault is not None and fault.status is not None:
            raise Refusal(fault.status, fault.retry_after)  # made and charged; the answer is lost
        return answer

    def _poll(self, reference: str, asked: Object) -> Object:
        self._suffer("poll", asked)
        found = self.books.render(reference)
        if found is None:
            raise Refusal(404, None)
        self.books.note("poll", {**asked, "key": found.key}, reference=reference)
        return found.state(time.time())

    def _trace(self, asked: Object) -> Object:
        self._suffer("trace", asked)
        self.books.note(str(asked["what"]), asked)
        return {}

    def _suffer(self, what: str, asked: Object) -> Fault | None:
        fault = self.books.fault(what, asked.get("task"))
        if fault is None:
            return None
        time.sleep(fault.delay_seconds)
        if fault.status is not None and not fault.create:
            self.books.note(what, asked, refused=fault.status)
            raise Refusal(fault.status, fault.retry_after)
        return fault

    def _guarded(self, work: Any) -> None:
        try:
            self._answer(200, work())
        except Refusal as refusal:
            self._answer(refusal.status, {"error": "refused"}, refusal.retry_after)
        except (KeyError, TypeError, ValueError) as error:
            self._answer(400, {"error": str(error)})

    def _answer(self, status: int, body: Any, retry_after: float | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", f"{retry_after:g}")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        """The log that counts is /log."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(host: str, port: int) -> Server:
    """A server with books of its own, not started yet; port 0 takes any."""
    return Server((host, port), type("BoundHandler", (Handler,), {"books": Books()}))


def main() -> None:
    parser = argparse.ArgumentParser(description="The paid provider of the render sample.")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args()
    server = serve(options.host, options.port)
    print(f"provider stub on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
