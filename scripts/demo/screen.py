"""Telling a person what goes on: steps with the time since the start, aligned; colours only on a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._start = time.monotonic()

    def _say(self, mark: str, text: str, style: str = "") -> None:
        self.console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {mark} {text}", style=style)

    def step(self, text: str) -> None:
        self._say("──", text, "bold cyan")

    def note(self, text: str) -> None:
        self._say("  ", text)

    def table(self, title: str, columns: list[str], rows: list[tuple[str, ...]]) -> None:
        table = Table(title=title, title_justify="left", title_style="bold")
        for n, column in enumerate(columns):
            table.add_column(column, justify="left" if n == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
