"""docs/settings.md names every setting once, with the default and the unit that the code has, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from slackwater.gateway.settings import GatewaySettings
from slackwater.identity import WorkerSettings
from slackwater.policy import Policy
from slackwater.settings import Constants, DeliverySettings, RetentionSettings, StoreSettings
from slackwater_operator.settings import Settings as OperatorSettings

TEXT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
_ROW = re.compile(r"^\| `([A-Z_]+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
_POLICY_ROW = re.compile(r"^\| `([a-z_]+)` \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)
KINDS: tuple[type[BaseSettings], ...] = (
    StoreSettings,
    Constants,
    WorkerSettings,
    GatewaySettings,
    DeliverySettings,
    RetentionSettings,
    OperatorSettings,
)
UNITS = {"SECONDS": "s", "DAYS": "d", "HOURS": "h"}


def variable(kind: type[BaseSettings], name: str) -> str:
    alias = kind.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"{kind.model_config.get('env_prefix', '')}{name}".upper()


def shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case "":
            return "empty"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:g}"
        case tuple():
            return ",".join(value)
        case _ if value is PydanticUndefined:
            return "required"
        case _:
            return f"`{value}`"


def in_code() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for kind in KINDS:
        for name, field in kind.model_fields.items():
            default = "made at start" if field.default_factory is not None else shown(field.default)
            unit = UNITS.get(name.rpartition("_")[2].upper(), "")
            entry = (default, unit)
            assert found.setdefault(variable(kind, name), entry) == entry, "one variable means one thing"
    return found


def in_docs() -> dict[str, tuple[str, str]]:
    rows = _ROW.findall(TEXT)
    assert len({row[0] for row in rows}) == len(rows), "each setting has one row"
    return {name: (default.strip(), unit.strip()) for name, default, unit, _ in rows}


def test_every_setting_of_the_code_is_documented_and_no_other() -> None:
    assert set(in_docs()) == set(in_code())


@pytest.mark.parametrize("name", sorted(in_code()))
def test_a_setting_s_default_and_unit_are_the_code_s(name: str) -> None:
    assert in_docs().get(name) == in_code()[name]


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, _, _, meaning in _ROW.findall(TEXT) if len(meaning.strip()) < 10] == []


def test_the_policy_s_fields_are_documented_with_their_defaults() -> None:
    documented = {name: default.strip() for name, default, _ in _POLICY_ROW.findall(TEXT)}
    assert documented == {name: shown_policy(value) for name, value in Policy().document().items()}


def shown_policy(value: object) -> str:
    return "none" if value == {} else str(value)
