"""pytest's way to a cluster: `from tests.cluster.fixtures import cluster` in a conftest.

SLACKWATER_KEEP=1 leaves the cluster for looking at; CONTEXT=name uses that context of your kubeconfig instead, and a
test that asks for faults is then skipped.
"""

import os
from collections.abc import Iterator

import pytest

from tests.cluster import images
from tests.cluster.cluster import Cluster
from tests.cluster.external import ExternalCluster, FaultsUnavailableError
from tests.cluster.faults import Faults

INSTANCE = "test"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster | ExternalCluster]:
    """One cluster for the run; the tests' thread is in its network."""
    if context := os.environ.get("CONTEXT"):
        yield ExternalCluster(context)
        return
    made = Cluster.up(INSTANCE, nodes=2, images=[images.build(images.SERVICES)])
    try:
        with made.joined():
            yield made
    finally:
        if not os.environ.get("SLACKWATER_KEEP"):
            made.down()


@pytest.fixture
def faults(cluster: Cluster | ExternalCluster) -> Faults:
    """Faults in the namespace `default`."""
    try:
        return cluster.faults_in("default")
    except FaultsUnavailableError as error:
        pytest.skip(str(error))
