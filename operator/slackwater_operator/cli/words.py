"""Text for people. Rule: one line per fact, aligned by blanks, whatever was stored; times in UTC and said so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]


def clean(text: Any) -> str:
    """On one line and without control characters: messages come from kubelets and from strangers' programs."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def span(length: timedelta) -> str:
    seconds = max(0, int(length.total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 120:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60:02}m"
    return f"{days}d{hours % 24}h"


def clock(instant: datetime, now: datetime) -> str:
    """With its date if that is another day's."""
    at = instant.astimezone(UTC)
    return f"{at:%H:%MZ}" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%MZ}"


def stamp(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side; a row that is one cell is a line of its own and widens nothing."""
    width: dict[int, int] = {}
    for row in rows:
        if len(row) > 1:
            for column, cell in enumerate(row):
                width[column] = max(width.get(column, 0), len(cell))
    return [
        row[0] if len(row) == 1 else "  ".join(cell.ljust(width[n]) for n, cell in enumerate(row)).rstrip()
        for row in rows
    ]
