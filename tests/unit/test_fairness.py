"""Fair order as a simulation: one place, tasks claimed by the smallest key, ties in order of admission."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slackwater.fairness import PRIORITY_STEP, Share, bonus, place, virtual_time


class Queue:
    """What the store does with the keys, in a list."""

    def __init__(self, weights: dict[str, float] | None = None) -> None:
        self.weights = weights or {}
        self.finish: dict[str, float] = {}
        self.waiting: list[tuple[float, int, str, float]] = []
        self.admitted = 0
        self.running: float | None = None

    def admit(self, user: str, tasks: Sequence[tuple[float, int]]) -> None:
        pending = sum(1 for entry in self.waiting if entry[2] == user)
        share = Share(self.weights.get(user, 1.0), self.finish.get(user, 0.0), pending)
        due = min(self.waiting)[3] if self.waiting else None
        virtual = virtual_time(self.running, due)
        for cost, priority in tasks:
            placed = place(share, virtual, cost=cost, priority=priority)
            self.waiting.append((placed.key, self.admitted, user, placed.key + bonus(priority)))
            self.admitted += 1
            share = placed.share
        self.finish[user] = share.finish

    def claim(self) -> str:
        entry = min(self.waiting)
        self.waiting.remove(entry)
        self.running = entry[3]
        return entry[2]

    def claims(self, count: int) -> list[str]:
        return [self.claim() for _ in range(count)]


def test_ten_thousand_tasks_of_one_user_delay_anothers_first_by_at_most_one() -> None:
    queue = Queue()
    queue.admit("heavy", [(1.0, 0)] * 10_000)
    queue.claims(20)
    queue.admit("light", [(1.0, 0)])
    assert "light" in queue.claims(2)


def test_two_backlogs_take_turns() -> None:
    queue = Queue()
    queue.admit("a", [(1.0, 0)] * 50)
    queue.admit("b", [(1.0, 0)] * 50)
    order = queue.claims(40)
    assert [order[i : i + 2].count("a") for i in range(0, 40, 2)] == [1] * 20


@pytest.mark.parametrize(("weight", "share"), [(1.0, 20), (3.0, 30), (0.25, 8)])
def test_turns_follow_the_weight(weight: float, share: int) -> None:
    queue = Queue({"a": weight})
    queue.admit("a", [(1.0, 0)] * 200)
    queue.admit("b", [(1.0, 0)] * 200)
    assert abs(queue.claims(40).count("a") - share) <= 1


def test_a_task_that_costs_more_takes_more_of_its_users_turns() -> None:
    queue = Queue()
    queue.admit("a", [(4.0, 0)] * 50)
    queue.admit("b", [(1.0, 0)] * 50)
    assert abs(queue.claims(50).count("a") - 10) <= 1


def test_who_sends_the_next_task_as_soon_as_the_last_was_claimed_does_not_starve_a_backlog() -> None:
    queue = Queue()
    queue.admit("backlog", [(1.0, 0)] * 100)
    order = []
    for _ in range(40):
        queue.admit("quick", [(1.0, 0)])
        order += queue.claims(1)
        if "quick" not in {entry[2] for entry in queue.waiting}:
            continue
        order += queue.claims(1)
    assert order.count("backlog") >= 18


def test_who_sends_each_next_task_with_priority_pays_for_it_once() -> None:
    queue = Queue()
    queue.admit("backlog", [(1.0, 0)] * 200)
    order = []
    for _ in range(100):
        if "quick" not in {entry[2] for entry in queue.waiting}:
            queue.admit("quick", [(1.0, 3)])
        order += queue.claims(1)
    assert order.count("backlog") >= (100 - 3 * PRIORITY_STEP) / 2 - 2
    assert order.index("backlog") <= 3 * PRIORITY_STEP + 1


def test_a_priority_goes_first_and_what_waits_is_still_served() -> None:
    queue = Queue()
    queue.admit("a", [(1.0, 0)] * 5)
    queue.admit("b", [(1.0, 1)])
    assert queue.claim() == "b"
    for number in range(300):
        queue.admit(f"urgent-{number % 3}", [(1.0, 2)])
    before = queue.claims(300).index("a")
    assert 3 < before <= 3 * 2 * PRIORITY_STEP + 3


def test_a_newcomer_beside_urgent_tasks_does_not_join_in_front_of_what_waits() -> None:
    queue = Queue()
    queue.admit("a", [(1.0, 0)])
    queue.admit("urgent", [(1.0, 3)] * 10)
    queue.claims(2)
    queue.admit("newcomer", [(1.0, 0)])
    order = queue.claims(10)
    assert order.index("a") < order.index("newcomer")


def test_cancelled_tasks_leave_no_debt() -> None:
    queue = Queue()
    queue.admit("a", [(1.0, 0)] * 100)
    queue.admit("b", [(1.0, 0)] * 1000)
    queue.waiting = [entry for entry in queue.waiting if entry[2] != "b"]
    queue.claims(3)
    queue.admit("b", [(1.0, 0)])
    assert "b" in queue.claims(3)


@pytest.mark.parametrize(
    ("running", "due", "later", "level"),
    [
        (None, None, None, 0.0),
        (None, None, 7.0, 7.0),
        (3.0, None, 7.0, 3.0),
        (None, 5.0, 1.0, 5.0),
        (3.0, 5.0, None, 5.0),
        (9.0, 5.0, None, 9.0),
    ],
)
def test_the_level_is_how_far_running_and_waiting_tasks_have_come(
    running: float | None, due: float | None, later: float | None, level: float
) -> None:
    assert virtual_time(running, due, later) == level
