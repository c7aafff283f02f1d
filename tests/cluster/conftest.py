"""The harness's own tests: they make namespaces and break nodes, so only as root and not on a cluster of yours."""

import os
from pathlib import Path

import pytest

from tests.cluster.fixtures import cluster, faults

__all__ = ["cluster", "faults"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "needs root" if os.geteuid() else "CONTEXT is set" if os.environ.get("CONTEXT") else ""
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"the harness's own tests: {reason}"))
