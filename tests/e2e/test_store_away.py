"""A store that can't be reached stops every deletion and ends nothing."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.pools import V2, PoolUnderTest
from tests.kit.waiting import until


def test_without_its_store_the_operator_deletes_nothing_and_goes_on_when_it_is_back(
    make_pool: Callable[..., PoolUnderTest],
) -> None:
    pool = make_pool(replicas=2)
    kube = pool.stage.kube
    before = {p["metadata"]["uid"] for p in pool.pods()}
    # the Service without endpoints: new connections are refused, and the old ones are cut by the server's own restart
    kube.kubectl("patch", "service", "postgres", "-p", '{"spec":{"selector":{"app":"nowhere"}}}')
    try:
        cut_all_sessions(pool)
        pool.until_condition("StoreReachable", lambda c: c.get("status") == "False", 60)
        pool.set_image(V2)
        pool.patch(replicas=1)
        with pool.watched(leases=False) as record:
            until(
                "the new generation seen without the store",
                60,
                lambda: pool.status.get("observedGeneration") == pool.body["metadata"]["generation"],
            )
            until("thirty looks at the pods", 40, lambda: len(record.samples) >= 30)
        assert not any(p.terminating for s in record.samples for p in s.pods)
        assert before <= {p["metadata"]["uid"] for p in pool.pods()}
    finally:
        kube.kubectl("patch", "service", "postgres", "-p", '{"spec":{"selector":{"app":"postgres"}}}')
    pool.until_condition("StoreReachable", lambda c: c.get("status") == "True", 60)
    pool.until_settled(1, 120)


def cut_all_sessions(pool: PoolUnderTest) -> None:
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename IS NOT NULL"
    psql = ["psql", "-h", "127.0.0.1", "-U", "slackwater", "-c", sql, "slackwater"]
    pool.stage.kube.kubectl("exec", "deployment/postgres", "--", "env", "PGPASSWORD=slackwater", *psql)
