"""Who a worker is: one per pod, under an id that a witness can read."""

from __future__ import annotations

import os
from pathlib import Path

from slackwater.identity import PodLock, write_termination_log


def test_a_pods_lock_admits_one_worker_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    first, second = PodLock(tmp_path), PodLock(tmp_path)
    assert first.try_take()
    assert not second.try_take()
    os.close(first.inherit[0])
    assert second.try_take()
    os.close(second.inherit[0])


def test_the_termination_log_begins_with_exactly_the_id(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    assert not write_termination_log(log, "w-1"), "outside a container there is none"
    log.write_text("what an earlier process left, longer than an id\n")
    assert write_termination_log(log, "w-2")
    assert log.read_text() == "w-2\n"
