"""ControllerRevisions → what a person compares: number, what became of it, image, when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from slackwater_operator.cli.survey import Raw, condition, content_of, status_of
from slackwater_operator.cli.words import Json, aligned, span, stamp
from slackwater_operator.names import WORKER_CONTAINER, Condition, Reason
from slackwater_operator.seen import Revision

_COLUMNS = ("NUMBER", "REVISION", "OUTCOME", "AT", "PODS", "IMAGE", "AGE")


def document(pool: Raw, revisions: Iterable[Revision]) -> list[Json]:
    """The newest first."""
    pods = {entry.get("name"): int(entry.get("replicas", 0)) for entry in status_of(pool).get("revisions") or []}
    written, failing = content_of(pool), _failing(pool)
    return [
        {
            "number": one.number,
            "revision": one.name,
            "written": one.content == written,
            "outcome": "failing" if one.name == failing else outcome(one),
            "completed": stamp(one.completed) if one.completed else None,
            "failed": stamp(one.failed) if one.failed else None,
            "created": stamp(one.created),
            "pods": pods.get(one.name, 0),
            "image": image(one),
            "restartedAt": one.content.get("restartedAt"),
        }
        for one in sorted(revisions, key=lambda r: -r.number)
    ]


def _failing(pool: Raw) -> str:
    """The revision that missed its deadline under onFailure: Stop; no mark is put on it, since it may still come up."""
    failed = condition(pool, Condition.ROLLOUT_FAILED)
    stopped = failed.get("status") == "True" and failed.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED.value
    return str(status_of(pool).get("updateRevision", "")) if stopped else ""


def outcome(one: Revision) -> str:
    """A revision that failed may have been tried again: the later mark counts."""
    if one.failed is not None and (one.completed is None or one.failed > one.completed):
        return "failed"
    return "completed" if one.completed is not None else "-"


def image(one: Revision) -> str:
    containers = ((one.content.get("template") or {}).get("spec") or {}).get("containers") or []
    return str(next((c.get("image", "") for c in containers if c.get("name") == WORKER_CONTAINER), ""))


def lines(pool: Raw, revisions: Iterable[Revision], now: datetime) -> list[str]:
    """The star marks what the spec says now."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for one in document(pool, revisions):
        rows.append(
            (
                f"{one['number']}{'*' if one['written'] else ''}",
                one["revision"],
                one["outcome"],
                (one["failed"] if one["outcome"] == "failed" else one["completed"]) or "-",
                str(one["pods"]),
                one["image"] or "-",
                span(now - datetime.fromisoformat(one["created"])),
            )
        )
    return aligned(rows)
