"""Values of the protocol: the submission's key, declarations, and which signal judges silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from slackwater.activity import Signals, silent_for
from slackwater.claim import Declaration, OnInterrupt, RunningClaim, submission_key

TASK = UUID("7f1b8a52-98f5-4b0e-9d1c-0c6a5c0e8f11")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def running(active: float, updated: float) -> RunningClaim:
    return RunningClaim(
        task_id=TASK,
        epoch=1,
        token=uuid4(),
        worker_id="w",
        pod_uid="p",
        pool_uid="q",
        lease_until=NOW,
        live=True,
        type="t",
        queue="default",
        user_id="u",
        channel="",
        active_at=NOW - timedelta(seconds=active),
        updated_at=NOW - timedelta(seconds=updated),
        read_at=NOW,
        submission_open=False,
    )


def test_a_submissions_key_is_a_function_of_its_identity_and_stays_as_it_is() -> None:
    assert submission_key(TASK, "render", 1) == submission_key(TASK, "render", 1)
    others = {submission_key(TASK, "render", 2), submission_key(TASK, "r", 1), submission_key(uuid4(), "render", 1)}
    assert submission_key(TASK, "render", 1) not in others
    assert submission_key(TASK, "a", 11) != submission_key(TASK, "a1", 1)
    # A changed key is a second charge for every submission that is open during the upgrade.
    assert submission_key(TASK, "render", 1) == "f6a041e1-54ba-5dc3-a6d8-c06b4a5c96ef"


def test_a_declaration_keeps_its_defaults_and_ignores_what_a_newer_release_adds() -> None:
    assert Declaration.read({}) == Declaration()
    assert Declaration.read({"on_interrupt": "hold", "fed": True, "stale_seconds": 5, "newer": 1}) == Declaration(
        on_interrupt=OnInterrupt.HOLD, fed=True, stale_seconds=5
    )
    with pytest.raises(ValueError, match="nonsense"):
        Declaration.read({"on_interrupt": "nonsense"})


@pytest.mark.parametrize(
    ("fed", "signals", "silent"),
    [
        (False, Signals(NOW_MS, {TASK: NOW_MS}), 100.0),
        (True, Signals(NOW_MS, {TASK: NOW_MS - 7000}), 7.0),
        (True, Signals(NOW_MS, {}), 200.0),
        (True, None, 200.0),
        (True, Signals(NOW_MS + 4900, {TASK: NOW_MS}), 4.9),
        (True, Signals(NOW_MS + 5100, {TASK: NOW_MS}), 200.0),
        (True, Signals(NOW_MS - 5100, {TASK: NOW_MS}), 200.0),
    ],
)
def test_only_the_types_own_signal_judges(fed: bool, signals: Signals | None, silent: float) -> None:
    seen = running(active=100, updated=200)

    assert silent_for(seen, fed=fed, signals=signals, skew_seconds=5) == pytest.approx(silent)
