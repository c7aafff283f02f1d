"""The documentation's task does what the documentation says, under the harness that it recommends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from slackwater.store import Store
from slackwater.testing import TaskHarness

DOCS = Path(__file__).parents[2] / "docs"


def example(document: str, number: int) -> str:
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", (DOCS / document).read_text(), re.MULTILINE | re.DOTALL)
    return blocks[number]


async def test_the_first_example_of_writing_a_task_runs(
    store: Store, redis: Redis, postgres_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(example("writing-a-task.md", 0))
    monkeypatch.syspath_prepend(str(tmp_path))
    async with TaskHarness("shop", database_url=postgres_url, redis_url=redis_url) as h:
        run = await h.start("frame", {"frame": 3})
        assert (await run.result())["url"].startswith("https://acme.example/job-")
        (submission,) = await run.submissions()
        assert submission.resolved
        assert (await run.view()).progress == 1
