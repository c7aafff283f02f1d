"""Coming up fast, going away without a trace, also after a crash, and beside others."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cluster import api, images, leftovers, lifecycle
from tests.cluster.cluster import Cluster
from tests.cluster.layout import Layout

pytestmark = pytest.mark.cluster
SECONDS_TO_COME_UP = 20


@pytest.fixture
def other() -> Iterator[Layout]:
    """A second instance, removed whatever the test did to it."""
    lay = Layout("other")
    lifecycle.down(lay)
    yield lay
    lifecycle.down(lay)


def test_an_instance_comes_up_beside_another_and_leaves_nothing(cluster: Cluster, other: Layout) -> None:
    before = leftovers.machine()
    services = images.build(images.SERVICES)
    began = time.monotonic()
    made = Cluster.up(other.instance, nodes=2, images=[services])
    assert time.monotonic() - began < SECONDS_TO_COME_UP
    assert api.ready_nodes(other) == {"node1", "node2"} <= api.ready_nodes(cluster.layout)
    assert leftovers.of(other), "the search for leftovers finds a running instance"
    made.down()
    assert leftovers.of(other) == []
    assert leftovers.machine() == before
    assert api.ready_nodes(cluster.layout), "the neighbour is untouched"


@pytest.mark.parametrize("word", ["starting", "API server answers", "nodes Ready"])
def test_down_cleans_up_after_up_was_killed_on_its_way(other: Layout, word: str) -> None:
    command = [sys.executable, "-m", "tests.cluster", "up", "--bare", "--nodes=2", f"--instance={other.instance}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=images.REPO) as up:
        assert up.stderr is not None
        assert any(word in line for line in up.stderr)
        up.send_signal(signal.SIGKILL)
    lifecycle.down(other)
    assert leftovers.of(other) == []


def test_up_replaces_what_a_crash_left(other: Layout) -> None:
    for _ in range(2):
        Cluster.up(other.instance, nodes=1)
    assert api.ready_nodes(other) == {"node1"}


def test_down_of_nothing_is_no_error(other: Layout) -> None:
    lifecycle.down(other)
    assert leftovers.of(other) == []
