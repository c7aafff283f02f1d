"""Histories of the lease protocol, searched for one that breaks a promise (rules 1 to 16), on real servers.

Workers, an operator, sweeps, an admin and a provider are actors on the product's own functions (history/worker.py,
world.py); Hypothesis is the adversary that says who takes the next statement, loses replies, lets requests come late,
cuts connections, pauses and kills processes, moves the clocks and flushes Redis (history/stage.py, clock.py). After
every statement history/judge.py looks at what is committed. At the end everything is healed, and every task must end.

`make test` runs at least 10,000 statements. A long run by hand, with the seed that it printed to see it again:

    SLACKWATER_HISTORY_STEPS=1000000 SLACKWATER_HISTORY_SEED=17 pytest -s tests/property/test_protocol_history.py
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterator

import pytest
import structlog.testing
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.property.history.stage import Go
from tests.property.history.theatre import History, Theatre

STEPS = int(os.environ.get("SLACKWATER_HISTORY_STEPS", "10000"))
SEED = int(os.environ.get("SLACKWATER_HISTORY_SEED", str(random.SystemRandom().randrange(2**32))))
BATCH = 10
MOVES = 80

picks = st.integers(0, 30)
choices = st.integers(0, 59)
kinds = st.lists(st.sampled_from(["plain", "plain", "paid", "paid", "paid", "kept", "once"]), min_size=4, max_size=8)
FAULTS = st.sampled_from(["lose", "cut", "late"])
OUTSIDERS = st.sampled_from(["reaper", "reaper", "sweep1", "sweep2", "sweep1", "operator", "operator", "admin"])
SECONDS = st.sampled_from([1, 3, 6, 6, 10, 14, 14, 20, 31, 36, 46, 61, 700])
STEPS_OF_REDIS = st.sampled_from([-100.0, -20.0, -3.0, 3.0, 20.0, 44.0, 100.0])
ENDS_OF_PROCESSES = st.sampled_from(["kill", "kill", "start", "start", "start", "sigterm"])


class Adversary(RuleBasedStateMachine):
    theatre: Theatre
    history: History
    healed = True

    @initialize(kinds=kinds, pods=st.integers(2, 3))
    def open(self, kinds: list[str], pods: int) -> None:
        self.history = self.theatre.play(tuple(kinds), pods)

    @rule(pick=picks, choice=choices, times=st.integers(1, 12))
    def run(self, pick: int, choice: int, times: int) -> None:
        self._move(self.history.step(pick, Go(choice), times))

    @rule(choices=st.lists(choices, min_size=1, max_size=6), times=st.integers(1, 3))
    def everybody(self, choices: list[int], times: int) -> None:
        for _ in range(times):
            self._move(self.history.everybody(choices))

    @rule(choices=st.lists(choices, min_size=2, max_size=9), times=st.integers(1, 4))
    def everybody_on(self, choices: list[int], times: int) -> None:
        for _ in range(times):
            self._move(self.history.everybody(choices))

    @rule(pick=picks, choice=choices, times=st.integers(1, 6))
    def creep(self, pick: int, choice: int, times: int) -> None:
        self._move(self.history.step(pick, Go(choice, creep=True), times))

    @rule(pick=picks, choice=choices, fault=FAULTS)
    def fault(self, pick: int, choice: int, fault: str) -> None:
        self._move(self.history.step(pick, Go(choice, **{fault: True})))

    @rule(who=OUTSIDERS, choice=choices, times=st.integers(0, 6))
    def order(self, who: str, choice: int, times: int) -> None:
        self._move(self.history.order(who, choice, times))

    @rule(
        pick=picks,
        rounds=st.integers(4, 16),
        choice=choices,
        flush=st.booleans(),
        seconds=st.sampled_from([0, 0, 0, 6, 14, 31]),
    )
    def hold(self, pick: int, rounds: int, choice: int, flush: bool, seconds: float) -> None:
        self._move(self.history.hold(pick, rounds, choice, flush=flush, seconds=seconds))

    @rule(pick=picks, choice=choices)
    def lapse(self, pick: int, choice: int) -> None:
        self._move(self.history.lapse(pick, choice))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self._move(self.history.passes(seconds))

    @rule(what=st.sampled_from(["clock", "flush", "nothing", "nothing"]), seconds=STEPS_OF_REDIS)
    def redis(self, what: str, seconds: float) -> None:
        if what == "clock":
            self._move(self.history.redis_steps(seconds))
        elif what == "flush":
            self._move(self.history.redis_loses_everything())

    @rule(what=ENDS_OF_PROCESSES, pick=picks)
    def process(self, what: str, pick: int) -> None:
        match what:
            case "kill":
                self._move(self.history.kill(pick))
            case "start":
                self._move(self.history.start(pick))
            case _:
                self._move(self.history.sigterm(pick))

    @rule(
        pick=picks,
        what=st.sampled_from(["pause", "go on", "go on", "postgres", "redis", "both", "heal", "heal", "heal", "heal"]),
    )
    def hinder(self, pick: int, what: str) -> None:
        if what in ("pause", "go on"):
            self.history.pause(pick, what == "pause")
        else:
            self.history.cut(pick, what in ("postgres", "both"), what in ("redis", "both"))

    def _move(self, work: object) -> None:
        try:
            self.theatre.run(work)  # type: ignore[arg-type]
        except BaseException:
            self.healed = False
            print("\n".join(self.history.stage.trace[-80:]))
            raise

    def teardown(self) -> None:
        if hasattr(self, "history"):
            try:
                self.theatre.run(self.history.close(heal=self.healed))
            except BaseException:
                print("\n".join(self.history.stage.trace[-80:]))
                raise


@pytest.fixture
def theatre() -> Iterator[Theatre]:
    logging.getLogger("slackwater").setLevel(logging.CRITICAL)
    with structlog.testing.capture_logs(), Theatre() as opened:
        yield opened
    logging.getLogger("slackwater").setLevel(logging.NOTSET)


@pytest.mark.timeout(600 if STEPS <= 10_000 else 0)
def test_no_history_breaks_a_promise(theatre: Theatre) -> None:
    began, batch = time.monotonic(), 0
    while theatre.statements < STEPS:
        machine = type("Played", (Adversary,), {"theatre": theatre})
        chosen = settings(
            max_examples=BATCH,
            stateful_step_count=MOVES,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        print(f"SLACKWATER_HISTORY_SEED={SEED + batch}")
        run_state_machine_as_test(seed(SEED + batch)(machine), settings=chosen)
        batch += 1
    seconds = time.monotonic() - began
    print(f"{theatre.statements} statements in {batch * BATCH} histories, {theatre.statements / seconds:.0f} a second")
    assert theatre.statements >= STEPS
