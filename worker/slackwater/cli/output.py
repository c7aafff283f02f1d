"""What commands print. Rule: tables for people at a terminal, tab-separated lines in a pipe, JSON when asked for.

Results go to standard output and nothing else does; progress and errors go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any

import typer


class Format(StrEnum):
    AUTO = "auto"
    """A table at a terminal, lines in a pipe."""
    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


class Output:
    def __init__(self, wanted: Format) -> None:
        if wanted is Format.AUTO:
            wanted = Format.TABLE if sys.stdout.isatty() else Format.PLAIN
        self._format = wanted

    def rows(self, columns: Sequence[str], items: Sequence[Any]) -> None:
        """Many things of one kind; `columns` are what a table or a line shows, JSON has all fields."""
        documents = [_document(item) for item in items]
        if self._format is Format.JSON:
            _print_json(documents)
        elif self._format is Format.PLAIN:
            for document in documents:
                typer.echo("\t".join(_text(document.get(column)) for column in columns))
        else:
            _table(columns, [[_text(document.get(column)) for column in columns] for document in documents])

    def one(self, item: Any) -> None:
        """One thing with all its fields."""
        document = _document(item)
        if self._format is Format.JSON:
            _print_json(document)
        elif self._format is Format.PLAIN:
            for name, value in document.items():
                typer.echo(f"{name}\t{_text(value)}")
        else:
            _table(("field", "value"), [[name, _text(value)] for name, value in document.items()])


def note(message: str) -> None:
    """Progress and remarks."""
    typer.echo(message, err=True)


def _document(item: Any) -> dict[str, Any]:
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    return dict(item)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _text(value: Any) -> str:
    """One cell: never a tab or a line break, whatever was stored."""
    match value:
        case None:
            return "-"
        case Enum():
            text = str(value.value)
        case datetime():
            text = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case float():
            text = f"{value:g}"
        case str():
            text = value
        case dict() | list() | tuple():
            text = json.dumps(value, ensure_ascii=False, default=_plain)
        case _:
            text = str(value)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "-"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))  # Text: what was stored is no markup
    Console().print(table)
