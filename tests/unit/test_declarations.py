"""What a task type may declare about its end, and what others read of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from slackwater.claim import CancelCharge, Declaration, OnInterrupt, RunningClaim
from slackwater.settings import Constants
from slackwater.sweep import overrun
from slackwater.task import REGISTRY, task

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def running(*, for_seconds: float | None) -> RunningClaim:
    return RunningClaim(
        task_id=UUID(int=1),
        epoch=1,
        token=UUID(int=2),
        worker_id="w",
        pod_uid="p",
        pool_uid="q",
        lease_until=NOW,
        live=True,
        type="t",
        queue="default",
        user_id="u",
        channel="",
        active_at=NOW,
        updated_at=NOW,
        read_at=NOW,
        submission_open=False,
        claimed_at=None if for_seconds is None else NOW - timedelta(seconds=for_seconds),
    )


async def hook(*_arguments: Any) -> None: ...


def test_a_declaration_is_read_as_it_was_written() -> None:
    task("d.full", on_interrupt="fail", on_lost="hold", on_cancel=hook, compensate=hook, charge_on_cancel="all")(hook)
    declared = REGISTRY.get("d.full")
    assert declared is not None
    document = declared.declaration()
    assert (document["on_cancel"], document["compensate"], document["charge_on_cancel"]) == (True, True, "all")
    read = Declaration.read(document)
    assert (read.on_interrupt, read.lost) == (OnInterrupt.FAIL, OnInterrupt.HOLD)


def test_a_lost_lease_means_what_an_interruption_means_unless_declared() -> None:
    assert Declaration(on_interrupt=OnInterrupt.REQUEUE).lost is OnInterrupt.REQUEUE
    assert Declaration.read({"on_interrupt": "requeue"}).lost is OnInterrupt.REQUEUE
    task("d.plain")(hook)
    declared = REGISTRY.get("d.plain")
    assert declared is not None
    assert declared.charge_on_cancel is CancelCharge.SUBMITTED
    assert Declaration.read(declared.declaration()).on_lost is None


def test_a_hook_that_could_block_the_worker_is_refused() -> None:
    def blocking(*_arguments: Any) -> None: ...

    for which in ("on_cancel", "compensate"):
        hooks: dict[str, Any] = {which: blocking}
        with pytest.raises(ValueError, match=f"{which} must be an `async def`"):
            task("d.blocking", **hooks)(hook)
    with pytest.raises(ValueError, match="some"):
        task("d.charge", charge_on_cancel="some")(hook)


def test_a_run_is_over_its_time_only_past_its_worker_s_own_chance_to_end_it() -> None:
    constants = Constants()
    declared = Declaration(hard_timeout_seconds=100)
    limit = 100 + constants.cancel_grace_seconds + constants.lease_seconds
    assert not overrun(running(for_seconds=limit), declared, constants)
    assert overrun(running(for_seconds=limit + 0.1), declared, constants)
    assert not overrun(running(for_seconds=10_000), Declaration(), constants)
    assert not overrun(running(for_seconds=None), declared, constants)
