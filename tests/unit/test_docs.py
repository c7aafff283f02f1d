"""What the documents point to exists: other documents, commands and metrics."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from typer.main import get_command

from slackwater.cli.main import app
from slackwater.task import task

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
SOURCES = "\n".join(p.read_text() for p in (DOCS.parent / "worker").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_file_and_its_heading(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name} points to {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert heading in slugs, f"{page.name} points to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    root = get_command(app)
    groups = getattr(root, "commands", {})
    for words in re.findall(r"`slackwater ([a-z -]+)", page.read_text()):
        first, *rest = [word for word in words.split() if not word.startswith("-")] or [""]
        if not first:
            continue
        assert first in groups, f"{page.name}: slackwater {first}"
        below = getattr(groups[first], "commands", None)
        if below is not None and rest:
            assert rest[0] in below, f"{page.name}: slackwater {first} {rest[0]}"


@pytest.mark.parametrize("page", ["failure-modes.md", "providers.md", "webhooks.md", "writing-a-task.md"])
def test_metrics_exist(page: str) -> None:
    for name in re.findall(r"`(slackwater_[a-z_]+)", (DOCS / page).read_text()):
        assert f'"{name}"' in SOURCES, f"{page}: {name}"


def test_every_declaration_of_a_task_is_documented() -> None:
    text = (DOCS / "writing-a-task.md").read_text()
    assert [name for name in inspect.signature(task).parameters if name != "name" and f"`{name}" not in text] == []
