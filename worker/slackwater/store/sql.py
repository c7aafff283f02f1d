"""Small helpers for the statements. Rule: SQL stands as text in the module that owns it; values are always bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.types import DateTime, Text, TypeEngine

from slackwater.schema import SCHEMA

INSTANT: TypeEngine[Any] = DateTime(timezone=True)
TEXTS: TypeEngine[Any] = ARRAY(Text())
UUIDS: TypeEngine[Any] = ARRAY(UUID(as_uuid=True))


def sql(statement: str, parts: Mapping[str, str] | None = None, **types: TypeEngine[Any]) -> TextClause:
    """A statement; `{s}` stands for the schema, `{name}` for one of `parts` (constant SQL, never a value).

    `types` are for bound values whose type can't be left to guessing.
    """
    for name, part in {**(parts or {}), "s": SCHEMA}.items():
        statement = statement.replace("{" + name + "}", part)
    clause = text(statement)
    return clause.bindparams(*(bindparam(name, type_=kind) for name, kind in types.items())) if types else clause


def as_json(value: Any) -> str:
    """For CAST(:x AS jsonb). NaN and infinity raise ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
