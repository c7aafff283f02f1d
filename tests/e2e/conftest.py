"""One cluster and one installation for all end-to-end tests of a run; each test has a pool and a queue of its own.

SLACKWATER_KEEP=1 leaves the cluster for looking at; CONTEXT=name uses a context of your kubeconfig instead.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.demo.install import install
from scripts.demo.screen import Screen
from tests.kit.forward import Forwarded, Inside
from tests.kit.gateway import Gateway
from tests.kit.kube import Access, Kube
from tests.kit.pools import PoolUnderTest, Stage, manifest
from tests.kit.provider import Provider
from tests.kit.storeview import StoreView

INSTANCE = os.environ.get("SLACKWATER_E2E_INSTANCE", "e2e")


@pytest.fixture(scope="package")
def harness() -> Iterator[Any]:
    """The harness's cluster with the images on it, or None with CONTEXT."""
    if os.environ.get("CONTEXT"):
        yield None
        return
    from tests.cluster import images
    from tests.cluster.cluster import Cluster

    cluster = Cluster.up(INSTANCE, nodes=3, images=images.ours())
    try:
        with cluster.joined():
            yield cluster
    finally:
        if not os.environ.get("SLACKWATER_KEEP"):
            cluster.down()


@pytest.fixture(scope="package")
def stage(harness: Any) -> Iterator[Stage]:
    if harness is None:
        config = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        kube = Kube(Access(config, os.environ["CONTEXT"]))
        reach: Inside | Forwarded = Forwarded(kube)
    else:
        kube = Kube(Access(harness.kubeconfig))
        reach = Inside(kube)
    install(kube, Screen(), "tests/e2e/manifests")
    gateway = Gateway(reach)
    yield Stage(kube, gateway, Provider(reach), StoreView(reach))
    gateway.close()
    reach.close()


_numbers = itertools.count(1)


@pytest.fixture
def make_pool(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Callable[..., PoolUnderTest]]:
    """make_pool(replicas=3, concurrency=1, **spec) → a pool whose pods are ready; removed after the test."""
    made: list[PoolUnderTest] = []

    def make(*, replicas: int = 3, concurrency: int = 1, ready: bool = True, **spec: Any) -> PoolUnderTest:
        name = f"p{next(_numbers)}-{os.getpid()}"
        pool = PoolUnderTest(stage, name)
        made.append(pool)
        stage.kube.apply(manifest(name, replicas=replicas, concurrency=concurrency, **spec))
        if ready:
            pool.until_settled(replicas)
        return pool

    yield make
    for pool in made:
        pool.remove()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in str(item.path):
            item.add_marker(pytest.mark.e2e)
