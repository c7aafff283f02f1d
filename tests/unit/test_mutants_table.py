"""The table of `make mutants` fits the code: each mutant applies, and the tests that hold its guard exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from scripts.mutants.table import Guard, guards, redundant

ROOT = Path(__file__).parents[2]
GUARDS = guards()


@cache
def _names_in(file: str) -> frozenset[str]:
    """Names as pytest takes them, without parameters."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{f.name}" for f in node.body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return frozenset(found)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: g.name)
def test_it_changes_exactly_one_place(guard: Guard) -> None:
    guard.mutate((ROOT / guard.file).read_text())


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: g.name)
def test_the_tests_that_hold_it_exist(guard: Guard) -> None:
    assert guard.tests
    for test in guard.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _names_in(file), test


def test_names_are_given_once() -> None:
    names = [g.name for g in GUARDS] + [r.name for r in redundant()]
    assert len(names) == len(set(names))


def test_every_rule_has_a_mutant() -> None:
    assert {str(n) for n in range(1, 17)} <= {g.rule for g in GUARDS}
