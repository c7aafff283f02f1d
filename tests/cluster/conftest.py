"""The harness's own tests."""

from tests.cluster.fixtures import cluster, faults

__all__ = ["cluster", "faults"]
