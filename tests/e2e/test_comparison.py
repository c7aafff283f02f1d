"""The same work on a plain Deployment is interrupted: the judge of the other tests can say no."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.demo.plan import CONCURRENCY, NEW_IMAGE, REPLICAS
from scripts.demo.subjects import Plain
from tests.kit.pools import Stage
from tests.kit.provider import judge
from tests.kit.waiting import until


@pytest.fixture
def plain(stage: Stage) -> Iterator[Plain]:
    subject = Plain(stage.kube)
    subject.create()
    yield subject
    stage.kube.kubectl("delete", "deployment", "plain", "--ignore-not-found")


def test_a_plain_deployments_rolling_update_interrupts_running_tasks(stage: Stage, plain: Plain) -> None:
    until("the Deployment's pods", 90, lambda: plain.settled(REPLICAS), every=1)
    places = REPLICAS * CONCURRENCY
    ids = [
        stage.gateway.submit("render", {"seconds": 20, "frame": n}, key=f"comparison-{n}", queue=plain.queue)
        for n in range(places)
    ]

    def started() -> bool:
        return len(judge(e for e in stage.provider.log() if e["task"] in set(ids)).interrupted) == places

    until("all places busy", 60, started)
    plain.set_image(NEW_IMAGE)
    states = stage.gateway.wait_ended(ids, 240)
    verdict = judge(e for e in stage.provider.log() if e["task"] in set(ids))
    assert len(verdict.interrupted) > 0, "a Deployment that interrupts nothing would make every other test worthless"
    assert set(states.values()) == {"done"}, "fenced and reattached, the tasks still end once"
    assert not verdict.paid_twice
