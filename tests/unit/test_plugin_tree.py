"""The tree of a pool: states of pods, order of revisions, and lines that stay aligned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from slackwater_operator import reading
from slackwater_operator.cli import history, tree
from slackwater_operator.cli.survey import State, sights, worth_saying
from slackwater_operator.cli.words import aligned, clean, clock, span
from tests.unit.plugin_cluster import NEW, NOW, OLD, REVISIONS, at, condition, draining, pod, pool, waiting

BUSY = pod(f"reports-{NEW}-0", labels={"slackwater.dev/protected": "true"})
STARTING = pod("reports-s", ready=False)
STARTING["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
ENDED = pod("reports-e")
ENDED["status"]["phase"] = "Failed"


def test_what_people_see_in_the_middle_of_a_rollout() -> None:
    assert tree.lines(pool(), [draining(), BUSY], NOW) == [
        "shop/reports  desired 2  ready 2  busy 2  draining 1  leases 3",
        f"  Progressing=True  RollingOut  1 of 2 pods have revision {NEW}",
        f"├─ revision {NEW} (wanted)  1 pod  busy 1  leases 1",
        f"│  └─ reports-{NEW}-0  Ready     node-1  2h10m  at work",
        f"└─ revision {OLD} (proven)  1 pod  busy 1  leases 2",
        f"   └─ reports-{OLD}-0  Draining  node-1  2h10m  "
        "Rollout since 09:40Z until 11:10Z, 2 leases, free about 10:12Z",
    ]


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (pod("reports-a"), State.READY),
        (pod("reports-a", ready=False), State.NOT_READY),
        (STARTING, State.STARTING),
        (waiting(pod("reports-a"), "ImagePullBackOff", "no"), State.NOT_READY),
        (draining(), State.DRAINING),
        (pod(f"reports-{OLD}-0", OLD), State.DRAINING),  # by its cordon alone
        (pod("reports-a", deletionTimestamp=at(1)), State.TERMINATING),
        (ENDED, State.ENDED),
    ],
)
def test_states(body: dict[str, Any], state: State) -> None:
    assert [s.state for s in sights(pool(), [body])] == [state]


def test_a_pod_with_the_label_alone_is_not_the_pools() -> None:
    assert sights(pool(), [pod("stranger", owned=False)]) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"conditions": (condition("Progressing", "True", "Complete", "x"),)}, []),
        (
            {"conditions": (condition("StoreReachable", "False", "Unreachable", "x"),)},
            ["Progressing", "StoreReachable"],
        ),
        ({"conditions": (condition("Stalled", "True", "InvalidSpec", "x"),)}, ["Progressing", "Stalled"]),
        ({"conditions": (condition("Stalled", "False", "NodesUnreadable", "x"),)}, ["Progressing", "Stalled"]),
        ({"conditions": (condition("EvictionBlocked", "True", "SecondBudget"),)}, ["Progressing", "EvictionBlocked"]),
    ],
)
def test_conditions_that_are_worth_a_line(changed: dict[str, Any], said: list[str]) -> None:
    assert [c["type"] for c in worth_saying(pool(**changed))] == said


def test_a_pool_without_a_status_says_who_is_missing() -> None:
    fresh = {**pool(), "status": {}}
    assert "is it running" in tree.lines(fresh, [], NOW)[1]
    stale = pool(status={"observedGeneration": 3})
    assert any("not seen the latest spec" in line for line in tree.lines(stale, [], NOW))


def test_the_document_has_what_the_lines_leave_out() -> None:
    found = tree.document(pool(admission="Hold", rollout={"paused": True}), [draining()])
    assert (found["paused"], found["admission"], found["statusIsCurrent"]) == (True, "Hold", True)
    (one,) = found["revisions"][1]["pods"]
    assert (one["cause"], one["leases"], one["deadline"]) == ("Rollout", 2, at(70))
    assert found["revisions"][0]["pods"] == []


def test_stored_text_can_not_break_a_line() -> None:
    body = waiting(pod("reports-a"), "ErrImagePull", "a\nb\x1b[31mc\td")
    (row,) = [line for line in tree.lines(pool(), [body], NOW) if "reports-a" in line]
    assert row.endswith("ErrImagePull: a b [31mc d")
    assert clean("x\r\n\x00y") == "x y"


@pytest.mark.parametrize(
    ("line", "colour"),
    [
        ("   └─ reports-a-0  Draining  node-1  3m", "yellow"),
        ("│  ├─ reports-a-0  NotReady  node-1  3m", "red"),
        ("   └─ reports-a-0  Ready     node-1  3m  at work", ""),
        ("  Stalled=True  InvalidSpec  x", "red"),
        ("shop/reports  desired 2", "bold"),
        ("├─ revision 5d1e (wanted)  1 pod", "bold"),
        ("  Progressing=True  RollingOut  1 of 2 pods have revision 5d1e", ""),
    ],
)
def test_colours_follow_the_state(line: str, colour: str) -> None:
    assert tree.style(line) == colour


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=119), "119m"),
        (timedelta(hours=2, minutes=5), "2h05m"),
        (timedelta(hours=49), "2d1h"),
    ],
)
def test_spans(length: timedelta, text: str) -> None:
    assert span(length) == text


def test_times_of_another_day_have_their_date() -> None:
    assert (clock(NOW, NOW), clock(NOW + timedelta(days=1), NOW)) == ("10:00Z", "2026-05-05 10:00Z")


def test_a_line_of_its_own_widens_nothing() -> None:
    assert aligned([("a very long line",), ("a", "b"), ("cc", "")]) == ["a very long line", "a   b", "cc"]


def test_history_has_the_newest_first_and_a_star() -> None:
    found = [reading.revision(r) for r in REVISIONS]
    assert history.lines(pool(), found, NOW) == [
        "NUMBER  REVISION    OUTCOME    AT                    PODS  IMAGE       AGE",
        f"3*      {NEW}  -          -                     1     app:2       16h37m",
        "2       bad0000000  failed     2026-05-03T22:20:00Z  0     app:broken  16h38m",
        f"1       {OLD}  completed  2026-05-03T20:40:00Z  1     app:1       16h39m",
    ]


@pytest.mark.parametrize(
    ("marks", "outcome"),
    [
        ({}, "-"),
        ({"completed_at": at(-9)}, "completed"),
        ({"failed_at": at(-9)}, "failed"),
        ({"failed_at": at(-9), "completed_at": at(-3)}, "completed"),
        ({"failed_at": at(-3), "completed_at": at(-9)}, "failed"),
    ],
)
def test_the_later_mark_counts(marks: dict[str, str], outcome: str) -> None:
    body = REVISIONS[2]
    annotations = {f"slackwater.dev/{key.replace('_', '-')}": value for key, value in marks.items()}
    one = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    assert history.outcome(reading.revision(one)) == outcome


@pytest.mark.parametrize(
    ("reason", "outcomes"),
    [("ProgressDeadlineExceeded", ["failing", "failed", "completed"]), ("RolledBack", ["-", "failed", "completed"])],
)
def test_a_rollout_that_stopped_is_failing(reason: str, outcomes: list[str]) -> None:
    now = pool(conditions=(condition("RolloutFailed", "True", reason),))
    found = [reading.revision(r) for r in REVISIONS]
    assert [one["outcome"] for one in history.document(now, found)] == outcomes
