"""What the doctor's figures mean. Pure: values in, a finding out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from slackwater.errors import InvalidInput
from slackwater.policy import Policy

POSTGRES_MIN: Final = 150000
REDIS_MIN: Final = (7, 0)
CLOCK_SECONDS: Final = 5.0
CONNECTIONS_MIN: Final = 50


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    check: str
    verdict: Verdict
    found: str
    mend: str = ""

    @property
    def wrong(self) -> bool:
        return self.verdict is Verdict.WRONG


def settings(error: str | None) -> Finding:
    return _finding(
        "settings", error, "consistent", "Correct the variable named here; the figures depend on each other."
    )


def database_url(error: str) -> Finding:
    return _finding("postgres", error, "", "Set DATABASE_URL to postgresql://user:password@host:5432/database.")


def redis_url(error: str) -> Finding:
    return _finding("redis", error, "", "Set REDIS_URL to redis://host:6379/0, or redis+sentinel://host:26379/master.")


def connected(server: str, error: str | None) -> Finding:
    name = "DATABASE_URL" if server == "postgres" else "REDIS_URL"
    mend = (
        f"Check host, port, user and password in {name}, that the server runs, and that the network lets you through."
    )
    return _finding(server, error, "answers", mend)


def server(row: Mapping[str, Any]) -> list[Finding]:
    """Version, role and durability of Postgres."""
    version = int(row["version"])
    old = f"version {version // 10000}" if version < POSTGRES_MIN else None
    durable = [name for name in ("fsync", "synchronous_commit") if row[name] == "off"]
    few = int(row["max_connections"]) < CONNECTIONS_MIN
    standby = "a standby" if row["standby"] else None
    read_only = "read-only by default" if row["read_only"] == "on" else None
    return [
        _finding("postgres version", old, f"{version // 10000}", "Use PostgreSQL 15 or newer."),
        _finding(
            "postgres primary",
            standby or read_only,
            "primary, writable",
            "Point DATABASE_URL at the primary (target_session_attrs=read-write); lift default_transaction_read_only.",
        ),
        _finding(
            "postgres durability",
            f"{' and '.join(durable)} off" if durable else None,
            "commits are durable",
            "Set fsync and synchronous_commit to on: an accepted task must survive a crash.",
        ),
        Finding(
            "postgres connections",
            Verdict.WARNING if few else Verdict.OK,
            f"max_connections {row['max_connections']}",
            "Raise max_connections or put PgBouncer in between; docs/settings.md has the formula." if few else "",
        ),
    ]


def clock(server_name: str, theirs: float, before: float, after: float) -> Finding:
    """The server's clock against this machine's; the answer came between `before` and `after`."""
    apart = 0.0 if before <= theirs <= after else min(abs(theirs - before), abs(theirs - after))
    shown = f"{apart:.1f} s apart from this machine"
    return _finding(
        f"{server_name} clock",
        shown if apart > CLOCK_SECONDS else None,
        shown,
        "Let all machines follow one time server (chrony, systemd-timesyncd).",
    )


def permissions(denied: Sequence[str]) -> Finding:
    shown = ", ".join(denied[:5]) + (f" and {len(denied) - 5} more" if len(denied) > 5 else "")
    mend = (
        "GRANT USAGE ON SCHEMA slackwater, SELECT, INSERT, UPDATE, DELETE ON ALL TABLES, and USAGE ON ALL SEQUENCES "
        "IN SCHEMA slackwater to this user."
    )
    return _finding("postgres permissions", f"none on {shown}" if denied else None, "sufficient", mend)


def migrated(version: str, head: str) -> Finding:
    if version == head:
        return Finding("tables", Verdict.OK, f"at {head}")
    if version > head:
        return Finding(
            "tables",
            Verdict.WARNING,
            f"at {version}, newer than this release's {head}",
            "Upgrade this release; one behind works.",
        )
    return Finding("tables", Verdict.WRONG, f"at {version or 'none'}, not {head}", "Run `slackwater migrate`.")


def policy(document: object) -> Finding:
    mend = "Correct it with `slackwater policy set`, or run `slackwater migrate` if there is none."
    if document is None:
        return _finding("policy", "no row", "", mend)
    try:
        Policy.read(document)
    except InvalidInput as error:
        return _finding("policy", str(error), "", mend)
    return Finding("policy", Verdict.OK, "readable")


def listening(error: str | None, *, direct: bool) -> Finding:
    mend = (
        "Check DATABASE_DIRECT_URL: it must lead to Postgres itself."
        if direct
        else "Set DATABASE_DIRECT_URL past PgBouncer: transaction mode loses notifications. Polling goes on meanwhile."
    )
    return _finding("notifications", error, "arrive", mend)


def redis_server(info: Mapping[str, Any]) -> Finding:
    """Version and role of Redis or Valkey."""
    name = str(info.get("server_name", "redis"))
    version = str(info.get(f"{name}_version", info.get("redis_version", "0")))
    shown = f"{name} {version}, {info.get('role', '?')}"
    if info.get("role") not in ("master", "primary"):
        return _finding("redis primary", shown, "", "Point REDIS_URL at the primary, or use redis+sentinel://.")
    if info.get("redis_mode") == "cluster":
        return _finding("redis primary", f"{shown}, cluster", "", "Use a standalone Redis, or one with Sentinel.")
    compatible = str(info.get("redis_version", version))
    numbers = tuple(int(part) for part in compatible.split(".")[:2] if part.isdigit())
    return _finding(
        "redis version", shown if numbers < REDIS_MIN else None, shown, "Use Redis 7.0 or Valkey 7.2, or newer."
    )


def eviction(found: object) -> Finding:
    shown = found.decode() if isinstance(found, bytes) else str(found)
    mend = "Set maxmemory-policy to noeviction: an evicted slot lets more run than may."
    return _finding("redis eviction", None if shown == "noeviction" else shown, shown, mend)


def scripts(error: str | None) -> Finding:
    return _finding(
        "redis scripts", error, "allowed", "Allow EVAL and EVALSHA, and the slots' keys, in the user's ACL."
    )


def _finding(check: str, error: str | None, fine: str, mend: str) -> Finding:
    return Finding(check, Verdict.OK, fine) if error is None else Finding(check, Verdict.WRONG, error, mend)
