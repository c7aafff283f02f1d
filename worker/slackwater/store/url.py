"""One spelling of database URLs: whatever `postgresql` flavour is given, psycopg 3 talks to it."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from slackwater.errors import SettingsError


def driver_url(url: str) -> URL:
    """`postgres://…`, `postgresql://…` or `postgresql+psycopg://…` for SQLAlchemy. Raises SettingsError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError("DATABASE_URL", "is not a database URL") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise SettingsError("DATABASE_URL", f"must be a postgresql URL, not {parsed.get_backend_name()}")
    return parsed.set(drivername="postgresql+psycopg")


def plain_url(url: str) -> str:
    """The same for psycopg itself."""
    return driver_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
