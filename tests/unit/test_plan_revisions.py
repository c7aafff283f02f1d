"""Situations → what is written on revisions: recorded, proven, failed, forgotten."""

from __future__ import annotations

from dataclasses import replace

from slackwater_operator.actions import Create, Forget, Mark, Record
from slackwater_operator.drain import look
from slackwater_operator.revisions import choose
from slackwater_operator.seen import Revision
from slackwater_operator.spec import PoolSpec
from tests.unit.situations import (
    NEW,
    NOW,
    OLD,
    ROLLING,
    Situation,
    World,
    broken,
    hash_of,
    of,
    pool,
    revision,
    said,
    seconds,
    serving,
)

TWO = pool(2)
LATE = NOW - seconds(601)


def test_what_is_written_first_is_recorded_with_the_next_number() -> None:
    found = of(Record, World((), (revision("old", 4),)).plan(pool(1)))
    assert [(r.revision, r.number, r.exists) for r in found] == [(NEW, 5, False)]


def test_an_earlier_content_is_the_same_revision_with_a_new_number() -> None:
    found = of(Record, World((), (revision("new", 1), revision("old", 2))).plan(pool(1)))
    assert [(r.revision, r.number, r.exists) for r in found] == [(NEW, 3, True)]


def test_equality_is_by_content_not_by_hash() -> None:
    impostor = replace(revision("old", 1), name=NEW)
    found = of(Record, World((), (impostor,)).plan(pool(1)))
    assert len(found) == 1
    assert found[0].revision != NEW


def test_a_rollout_completes_when_every_replica_serves_the_new_revision() -> None:
    world = World((serving("a"), serving("b")), ROLLING)
    assert [(m.revision, m.what) for m in of(Mark, world.plan(pool(2)))] == [(NEW, "completed")]
    assert not of(Mark, replace(world, pods=(serving("a"), serving("b", OLD))).plan(pool(2)))
    assert not of(Mark, world.plan(pool(3)))


def test_pods_still_draining_do_not_hold_up_completion() -> None:
    world = World((serving("a"), serving("b", OLD).cordoned().busy()), ROLLING)
    assert [m.what for m in of(Mark, world.plan(pool(1)))] == ["completed"]


def late(**but: object) -> Situation:
    return broken("x").but(created=LATE, **but)


def failed(world: World, spec: PoolSpec = TWO) -> bool:
    seen = world.seen()
    return choose(spec, seen, [look(seen, pod, NOW) for pod in seen.pods], NOW).failed


def test_a_new_pod_that_is_not_ready_in_time_fails_and_stops_the_rollout() -> None:
    pods = (serving("a", OLD), serving("b", OLD), serving("c"), late())
    world = World(pods, ROLLING)
    assert failed(world)
    spec = pool(3, rollout={"maxUnavailable": 1})
    assert said(world.plan(spec)) == []
    assert not of(Mark, world.plan(spec))
    assert said(World((*pods[:3], broken("x")), ROLLING).plan(spec)) == ["drain a Rollout", "create new"]


def test_the_progress_deadline_is_of_readiness_not_of_drains() -> None:
    drains = serving("d", OLD).cordoned().busy()
    world = World((serving("a").but(created=LATE), serving("o", OLD), drains), ROLLING)
    assert said(world.plan(pool(2))) == ["create new"]


def test_the_deadline_stands_still_while_paused_and_begins_anew() -> None:
    stopped = (replace(ROLLING[0], clock_stopped=True), ROLLING[1])
    paused = pool(2, rollout={"paused": True})
    assert [m.what for m in of(Mark, World((serving("a", OLD), late()), ROLLING).plan(paused))] == ["clock-stop"]
    assert not of(Mark, World((serving("a", OLD), late()), stopped).plan(paused))
    assert [m.what for m in of(Mark, World((serving("a", OLD), late()), stopped).plan(pool(2)))] == ["clock-start"]
    assert not failed(World((serving("a", OLD), late()), ROLLING), paused)
    assert not failed(World((serving("a", OLD), late()), stopped))
    resumed = (replace(ROLLING[0], clock=NOW - seconds(599)), ROLLING[1])
    assert not failed(World((serving("a", OLD), late()), resumed))
    assert failed(World((serving("a", OLD), late()), ROLLING))


def test_rollback_marks_the_revision_and_goes_back_to_the_proven_one() -> None:
    back = pool(2, rollout={"onFailure": "Rollback"})
    world = World((serving("a", OLD), serving("b", OLD), late()), ROLLING)
    assert [(m.revision, m.what) for m in of(Mark, world.plan(back))] == [(NEW, "failed")]
    marked = (replace(ROLLING[0], failed=NOW), ROLLING[1])
    assert said(World(world.pods, marked).plan(back)) == ["drain x Broken"]
    settled = World((serving("a", OLD), serving("b", OLD)), marked)
    assert said(settled.plan(back)) == []
    newer = of(Record, settled.plan(pool(2, image="third", rollout={"onFailure": "Rollback"})))
    assert [r.revision for r in newer] == [hash_of("third")]


def test_a_newer_spec_overtakes_a_rollback() -> None:
    failed_one = revision("new", 2, failed=NOW)
    third = revision("third", 3)
    world = World((serving("a", OLD), serving("b", OLD)), (failed_one, ROLLING[1], third))
    spec = pool(2, image="third", rollout={"onFailure": "Rollback"})
    assert [c.revision for c in of(Create, world.plan(spec))] == [hash_of("third")]


def test_while_a_revision_is_not_recorded_no_old_pod_goes() -> None:
    world = World((serving("a", OLD), serving("b", OLD)), (ROLLING[1],))
    spec = pool(2, rollout={"maxSurge": 0, "maxUnavailable": 1})
    assert said(world.plan(spec)) == []


def test_history_keeps_what_is_in_use_and_so_many_more() -> None:
    history: tuple[Revision, ...] = tuple(revision(f"v{n}", n) for n in range(1, 6))
    revisions = (*history, revision("old", 6, completed=True), revision("new", 7))
    world = World((serving("a", hash_of("v1")),), revisions)
    spec = pool(1, rollout={"revisionHistoryLimit": 2})
    assert [f.revision for f in of(Forget, world.plan(spec))] == [hash_of("v2"), hash_of("v3")]
