"""The gateway as a process of its own: settings from the environment; SIGTERM ends it with 0 and cuts no answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from sqlalchemy import text

from slackwater.errors import SettingsError
from slackwater.gateway.server import run
from slackwater.store import Store
from tests.integration.gateway.conftest import ALICE

TASK = {"type": "render", "payload": {"frame": 3}}
HEADERS = {"Authorization": f"Bearer {ALICE}"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(postgres_url: str, redis_url: str, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {
        "DATABASE_URL": postgres_url,
        "REDIS_URL": redis_url,
        "SLACKWATER_TOKENS": json.dumps({ALICE: "alice"}),
        "SLACKWATER_GATEWAY_DRAIN_SECONDS": "60",
        "SLACKWATER_GATEWAY_SHUTDOWN_SECONDS": "5",
        **more,
    }


@asynccontextmanager
async def gateway(env: dict[str, str]) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from slackwater.cli import main; main()", "gateway", "--host", "127.0.0.1", "--port", str(port)),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(20), httpx.AsyncClient() as client:
            while process.returncode is None:
                try:
                    if (await client.get(f"{url}/readyz")).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
        yield process, url
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_sigterm_ends_it_in_order(store: Store, postgres_url: str, redis_url: str) -> None:
    async with (
        gateway(environment(postgres_url.replace("postgresql:", "postgresql+psycopg:"), redis_url)) as (process, url),
        httpx.AsyncClient(headers=HEADERS, timeout=20) as client,
    ):
        task_id = (await client.post(f"{url}/api/tasks", json=TASK)).json()["id"]
        async with client.stream("GET", f"{url}/api/tasks/{task_id}/text-events") as stream:
            lines = stream.aiter_lines()
            while not (await anext(lines)).startswith("id: 1"):
                pass
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                while (await client.get(f"{url}/readyz")).status_code == 200:
                    pass
            async with store.transaction() as connection:  # and it took its share of the sweeps
                swept = text("SELECT bool_and(last > '-infinity') FROM slackwater.sweep")
                assert (await connection.execute(swept)).scalar_one()
            # Not ready any more, but still serving until load balancers have noticed.
            assert (await client.post(f"{url}/api/tasks", json=TASK)).status_code == 202
            process.send_signal(signal.SIGTERM)  # waits no longer
            async with asyncio.timeout(10):
                async for _ in lines:
                    pass
        async with asyncio.timeout(10):
            assert await process.wait() == 0
        assert process.stdout is not None
        log = (await process.stdout.read()).decode()
    documents = [json.loads(line) for line in log.splitlines()]
    assert {"request", "accepted"} <= {document["message"] for document in documents}
    assert ALICE not in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"SLACKWATER_TOKENS": ""}, "SLACKWATER_TOKENS"),
        ({"SLACKWATER_TOKENS_FILE": "/nonexistent"}, "SLACKWATER_TOKENS_FILE"),
        ({"SLACKWATER_GATEWAY_POOL_SIZE": "0"}, "SLACKWATER_GATEWAY_POOL_SIZE"),
        ({"DATABASE_URL": "mysql://x"}, "DATABASE_URL"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL"),
    ],
)
def test_bad_settings_are_refused_by_name_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, str], named: str
) -> None:
    for name, value in (environment("postgresql://x/y", "redis://x") | change).items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SettingsError, match=f"^{named}: "):
            run("127.0.0.1", 0)
    finally:
        signal.signal(signal.SIGTERM, before)
