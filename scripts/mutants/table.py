"""The table of guards. Rule: it can't rot; a text that no longer matches exactly once is a fault, not a skip."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLES = ("worker.toml", "operator.toml")


class Rotten(Exception):
    """The table no longer fits the code."""


@dataclass(frozen=True)
class Guard:
    name: str
    """What the mutant does, as a sentence about the code without its guard."""
    rule: str
    """Of docs/protocol.md, by number; or the operator's own, by a word of the design."""
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """The smallest selection that fails, as pytest takes it."""

    def mutate(self, text: str) -> str:
        """`text` without the guard. Raises Rotten."""
        found = text.count(self.old)
        if found != 1:
            raise Rotten(f"{self.file}: {found} matches for «{self.name}», not 1")
        mutated = text.replace(self.old, self.new)
        if mutated == text:
            raise Rotten(f"{self.file}: «{self.name}» changes nothing")
        if self.file.endswith(".py"):
            try:
                ast.parse(mutated)
            except SyntaxError as error:
                raise Rotten(f"{self.file}: «{self.name}» is no Python any more: {error}") from error
        return mutated


@dataclass(frozen=True)
class Redundant:
    """A guard that no test can miss, because another one stands behind it."""

    name: str
    file: str
    reason: str


def guards() -> list[Guard]:
    found = []
    for name in TABLES:
        for row in _read(name).get("guard", []):
            found.append(Guard(**{**row, "tests": tuple(row["tests"])}))
    return found


def redundant() -> list[Redundant]:
    return [Redundant(**row) for name in TABLES for row in _read(name).get("redundant", [])]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text())
