"""`slackwater dev` as people run it: one command, a task done, code saved, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.workers import ROOT, until

TASKS = """
import asyncio
from slackwater.sdk import task

@task("hello", on_interrupt="requeue")
async def hello(ctx, payload):
    await asyncio.sleep(payload.get("seconds", 0))
    return {"said": "one"}
"""


class Development:
    """The command, its lines as they come, and its gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def start(self, *more: str) -> None:
        environment = {
            **os.environ,
            "TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker")]),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "slackwater.entry", "dev", "mytasks", *more]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip())

    async def line(self, text: str, times: int = 1, seconds: float = 30) -> str:
        async def there() -> str | None:
            found = [line for line in self.lines if text in line]
            return found[times - 1] if len(found) >= times else None

        try:
            return await until(f"the line {text!r}", there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.lines)) from None

    async def client(self) -> httpx.AsyncClient:
        url = (await self.line("URL ")).split()[-1]
        token = (await self.line("token ")).split()[-1]
        return httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=10
        )

    async def exit(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            code = await self.process.wait()
            await self._reading
        return code

    def processes(self) -> list[str]:
        """Everything alive that was started for this run."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.folder).encode() in text:
                    found.append((entry / "cmdline").read_bytes().decode())
        return found


@pytest.fixture
async def development() -> AsyncIterator[Development]:
    # Readable on its whole path: as root, PostgreSQL runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="swd"))
    os.chmod(folder, 0o755)
    (folder / "mytasks.py").write_text(TASKS)
    run = Development(folder)
    try:
        yield run
    finally:
        if run.process.returncode is None:
            await run.exit(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


async def run_task(client: httpx.AsyncClient, **payload: Any) -> Any:
    accepted = await client.post("/api/tasks", json={"type": "hello", "payload": payload})
    accepted.raise_for_status()
    return await ended(client, accepted.json()["id"])


async def ended(client: httpx.AsyncClient, task: str) -> Any:
    async def there() -> Any:
        body = (await client.get(f"/api/tasks/{task}")).json()
        return body if body["state"] in ("done", "failed") else None

    return await until(f"{task} has ended", there)


async def gone(ask: Callable[[], list[str]]) -> None:
    async def none() -> bool:
        return not ask()

    await until("no process is left", none)


async def test_one_command_brings_a_first_task_to_its_end_and_ctrl_c_leaves_nothing(development: Development) -> None:
    await development.start()
    async with await development.client() as client:
        first = await run_task(client)
    assert first["result"] == {"said": "one"}
    assert any("curl -s http://127.0.0.1:" in line for line in development.lines)
    assert await development.exit() == 0
    assert {path.name for path in development.folder.iterdir()} - {"__pycache__"} == {"mytasks.py"}
    await gone(development.processes)


async def test_saved_code_serves_the_next_task_and_broken_code_never_replaces_it(development: Development) -> None:
    await development.start()
    tasks = development.folder / "mytasks.py"
    async with await development.client() as client:
        slow = (await client.post("/api/tasks", json={"type": "hello", "payload": {"seconds": 3}})).json()["id"]
        await development.line("started  type=hello")
        tasks.write_text(TASKS.replace("one", "two"))
        await development.line("a worker serves", times=2)
        assert (await run_task(client))["result"] == {"said": "two"}
        assert (await ended(client, slow))["result"] == {"said": "one"}, "the worker before finished what it ran"
        tasks.write_text("this is no Python")
        await development.line("the worker did not start (exit code 2): the worker before goes on")
        assert (await run_task(client))["result"] == {"said": "two"}
        tasks.write_text(TASKS.replace("one", "three"))
        await development.line("a worker serves", times=3)
        assert (await run_task(client))["result"] == {"said": "three"}
    assert await development.exit(signal.SIGTERM) == 0


async def test_a_kept_folder_keeps_its_tasks_and_its_token(development: Development) -> None:
    await development.start("--data", "kept", "--no-reload")
    async with await development.client() as client:
        task = (await run_task(client))["id"]
    assert await development.exit() == 0
    kept, development.lines = development.lines, []
    await development.start("--data", "kept", "--no-reload")
    async with await development.client() as client:
        assert (await client.get(f"/api/tasks/{task}")).json()["state"] == "done"
    tokens = {line.split()[-1] for line in [*kept, *development.lines] if line.strip().startswith("token ")}
    assert len(tokens) == 1
    assert await development.exit() == 0
    await gone(development.processes)


async def test_a_killed_command_takes_its_servers_and_workers_along(development: Development) -> None:
    await development.start()
    async with await development.client() as client:
        assert (await run_task(client))["state"] == "done"
    await development.exit(signal.SIGKILL)
    await gone(development.processes)
