"""The operator is killed between any two of its actions, and the next one resumes the same work: C20, C22.

By default a sample of all kinds of calls. SLACKWATER_KILLS=all kills at every single call of a rollout of two busy
pods, and does the rest with ten: half an hour or more, with a line per kill (`pytest -s`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audit import writes
from tests.kit.doomed_operator import is_step
from tests.kit.kills import Outcome, again_and_again, sample, scene, scene_manifest, single_kills
from tests.kit.operators import ACCOUNT, Doom, Operators, without_the_deployment
from tests.kit.pools import PoolUnderTest, Stage
from tests.kit.waiting import until

ALL = os.environ.get("SLACKWATER_KILLS") == "all"
PODS = 10 if ALL else 2


@pytest.fixture(scope="module")
def audit(harness: Any) -> Path:
    if harness is None:
        pytest.skip("needs the harness: its network for an operator outside of pods, and its audit log")
    return Path(harness.layout.audit_log)


@pytest.fixture(scope="module")
def operators(audit: Path, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    with without_the_deployment(stage.kube):
        made = Operators(stage.kube, tmp_path_factory.mktemp("operators"))
        yield made
        made.close()


def named(name: str) -> str:
    """Idempotency keys are made of it, so another run on the same cluster must not have it."""
    return f"{name}-{os.getpid()}"


def tell(title: str, outcome: Outcome, began: float) -> list[str]:
    """One line for who watches a long run; what is wrong, with its title."""
    missed = f", not met: {', '.join(map(str, outcome.missed))}" if outcome.missed else ""
    verdict = f"WRONG {outcome.wrong}" if outcome.wrong else "ok"
    print(f"{title}: {len(outcome.died)} killed{missed}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return [f"{title} (killed {'; '.join(outcome.died)}): {what}" for what in outcome.wrong]


def test_killed_before_and_after_calls_of_every_kind(operators: Operators, stage: Stage, audit: Path) -> None:
    wrong: list[str] = []
    missed: list[Doom] = []
    with scene(operators, stage, named("kinds"), 2, audit) as pool:
        dry = pool.rollout([], seconds=(2, 3))
        assert dry.wrong == []
        rounds = [[doom] for doom in single_kills(dry.calls)] if ALL else sample(dry.calls)
        print(f"{len(dry.calls)} calls in a dry run, {sum(map(len, rounds))} kills in {len(rounds)} rollouts")
        for dooms in rounds:
            began = time.monotonic()
            outcome = pool.rollout(dooms, seconds=(2, 3))
            wrong += tell(", ".join(map(str, dooms)), outcome, began)
            missed += outcome.missed
    assert wrong == []
    assert ALL or not [doom for doom in missed if is_step(doom.kind)], "each rollout makes these calls"


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_again_and_again_until_the_rollout_is_through(
    operators: Operators, stage: Stage, audit: Path, when: str
) -> None:
    with scene(operators, stage, named(f"again-{when}"), PODS, audit) as pool:
        began = time.monotonic()
        outcome = pool.rollout(again_and_again(when), seconds=(4, 10 + PODS), patience=300)
        assert tell(f"{PODS} busy pods, killed {when} every step", outcome, began) == []
        assert len(outcome.died) >= 5 * PODS // 2, "a pod takes five steps, and nobody lives for more than two"


@pytest.mark.skipif(not ALL, reason="SLACKWATER_KILLS=all")
@pytest.mark.timeout(7200)
def test_ten_busy_pods_and_one_kill_at_every_so_many_calls(operators: Operators, stage: Stage, audit: Path) -> None:
    every = int(os.environ.get("SLACKWATER_KILLS_EVERY", "17"))
    wrong: list[str] = []
    with scene(operators, stage, named("ten"), 10, audit) as pool:
        dry = pool.rollout([], seconds=(3, 12), patience=300)
        assert dry.wrong == []
        dooms = single_kills(dry.calls, every=every)
        print(f"{len(dry.calls)} calls in a dry run, {len(dooms)} kills")
        for doom in dooms:
            began = time.monotonic()
            wrong += tell(str(doom), pool.rollout([doom], seconds=(3, 12), patience=300), began)
    assert wrong == []


def test_c20_killed_after_each_create(operators: Operators, stage: Stage, audit: Path) -> None:
    """The API server has accepted a pod, and the operator that asked for it never knew."""
    pool = PoolUnderTest(stage, named("creates"))
    try:
        for _ in range(4 if ALL else 1):
            stage.kube.apply(scene_manifest(pool.name, 0))
            with operators.running():
                pool.until_settled(0)
            start = audit.stat().st_size
            pool.patch(replicas=5)
            for nth in range(1, 6):
                with operators.running(Doom("POST pods", 1, "after")) as process:
                    process.until_dead(30)
                assert process.died_at
                assert len(pool.pods()) == nth
            with operators.running():
                pool.until_settled(5)
            asked = [w for w in writes(audit, account=ACCOUNT, start=start) if w.verb == "create" and not w.dry_run]
            assert [w.code for w in asked if w.resource == "pods"] == [201] * 5, "none was asked for twice"
            uid, meta = pool.body["metadata"]["uid"], pool.body["metadata"]
            assert {p["metadata"]["ownerReferences"][0]["uid"] for p in pool.pods()} == {uid}
            assert not [key for key in meta.get("annotations", {}) if "kopf" in key]
            assert "finalizers" not in meta
    finally:
        pool.remove()


def test_c22_what_was_deleted_while_no_operator_ran_is_noticed_at_the_start(
    operators: Operators, stage: Stage, audit: Path
) -> None:
    some, whole, new = (PoolUnderTest(stage, named(name)) for name in ("some-gone", "all-gone", "new"))
    kube = stage.kube
    try:
        kube.apply(scene_manifest(some.name, 3))
        kube.apply(scene_manifest(whole.name, 1))
        with operators.running():
            some.until_settled(3)
            whole.until_settled(1)
        task = some.render(6)
        until("a task runs", 20, some.held)
        busy = {h.pod_uid for h in some.held()}
        idle = [p["metadata"]["name"] for p in some.pods() if p["metadata"]["uid"] not in busy]
        gone = {p["metadata"]["uid"] for p in (*some.pods(), *whole.pods()) if p["metadata"]["uid"] not in busy}
        names = [*idle, *(p["metadata"]["name"] for p in whole.pods())]
        kube.kubectl("delete", "pods", *names, "--force", "--grace-period=0")
        kube.apply(scene_manifest(new.name, 1))
        with operators.running():
            some.until_settled(3, 30)
            whole.until_settled(1, 30)
            new.until_settled(1, 30)
            assert not some.status.get("lostReplicas")
            until("the vanished pods are cordoned for good", 30, lambda: gone <= stage.store.cordoned())
            some.wait_ended()
        some.assert_each_ran_once()
        assert some.runs_of(task)
    finally:
        for pool in (some, whole, new):
            pool.remove()
