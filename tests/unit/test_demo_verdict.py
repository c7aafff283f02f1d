"""The demo's judge can say no: each way to lose, repeat or pay twice makes its claim false."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.demo.plan import TASKS
from scripts.demo.scenario import Told
from scripts.demo.verdict import judged
from tests.kit.provider import judge


def entries(task: str, epoch: int = 1, worker: str = "w1", *, ends: bool = True) -> list[dict[str, object]]:
    base = {"task": task, "epoch": epoch, "worker": worker}
    key = f"key-{task}"
    run = [{**base, "what": "start"}, {**base, "what": "submit", "key": key, "charged": epoch == 1}]
    return run + ([{**base, "what": "end"}] if ends else [])


def a_good_log() -> list[dict[str, object]]:
    return [e for n in range(TASKS) for e in entries(f"t{n}")]


def told(log: list[dict[str, object]], **changed: object) -> Told:
    states = {f"t{n}": "done" for n in range(TASKS)}
    good = Told(
        states=states, provider=judge(log), back_seconds=1.0, killed_worker_runs=1, slots_as_running=True, settled=True
    )
    return replace(good, **changed)  # type: ignore[arg-type]  # a table of single changes


def false_claims(story: Told) -> list[str]:
    return [c.claim for c in judged(story) if not c.holds]


def test_a_clean_run_holds_every_claim() -> None:
    assert false_claims(told(a_good_log())) == []


def test_a_run_that_never_ended_counts_as_interrupted() -> None:
    log = a_good_log() + entries("t0", 2, "w2", ends=False)
    assert false_claims(told(log)) == ["no rollout or scaling interrupted work"]


def test_the_killed_workers_run_is_not_the_rollouts_fault() -> None:
    log = a_good_log() + entries("t0", 2, "w2", ends=False)
    assert false_claims(told(log, killed_workers={"w2"})) == []


def test_two_ends_of_one_task_are_found() -> None:
    assert false_claims(told(a_good_log() + entries("t0", 2))) == ["every task finished once"]


def test_a_key_charged_twice_is_found() -> None:
    again = {"task": "t0", "epoch": 1, "worker": "w1", "what": "submit", "key": "key-t0", "charged": True}
    assert false_claims(told([*a_good_log(), again])) == ["every task paid once"]


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"states": {}}, "every task ended well"),
        ({"back_seconds": None}, "the killed worker's renders came back"),
        ({"back_seconds": 56.0}, "the killed worker's renders came back"),
        ({"slots_left": 1}, "slots in Redis = running tasks"),
        ({"slots_as_running": False}, "slots in Redis = running tasks"),
        ({"settled": False}, "the pods settled"),
    ],
)
def test_each_failing_is_named(changed: dict[str, object], claim: str) -> None:
    assert false_claims(told(a_good_log(), **changed)) == [claim]
