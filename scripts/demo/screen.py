"""Telling a person what goes on: steps with the time since the start, aligned; colours only on a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = 120
        self._start = time.monotonic()

    def _say(self, mark: str, text: str, style: str = "", *, whole: bool = False) -> None:
        line = f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {mark} {escape(text)}"
        self.console.print(
            line, style=style, no_wrap=not whole, overflow="fold" if whole else "ellipsis", crop=not whole
        )

    def step(self, text: str) -> None:
        self._say("──", text, "bold cyan")

    def note(self, text: str) -> None:
        """One line, cut at the screen's edge."""
        self._say("  ", text)

    def tell(self, text: str) -> None:
        """A line that must be read whole, such as a command to copy."""
        self._say("  ", text, whole=True)

    def table(self, title: str, columns: list[str], rows: list[tuple[str, ...]]) -> None:
        table = Table(title=title, title_justify="left", title_style="bold")
        for n, column in enumerate(columns):
            table.add_column(column, justify="left" if n == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
