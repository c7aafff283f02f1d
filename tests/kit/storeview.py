"""Looking into the store of a test cluster: which pod holds leases, how many slots are taken. Read only."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import redis

from tests.kit.forward import Reach


@dataclass(frozen=True)
class Held:
    task: str
    epoch: int
    worker: str
    pod_uid: str


class StoreView:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        host, port = self._reach.address("postgres")
        url = f"postgresql://slackwater:slackwater@{host}:{port}/slackwater?connect_timeout=5"
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def held(self) -> list[Held]:
        """Running claims with the pod that holds them, expired ones too."""
        rows = self._rows(
            "SELECT c.task_id, c.epoch, c.worker_id, w.pod_uid FROM slackwater.claim c"
            " JOIN slackwater.worker w ON w.id = c.worker_id WHERE c.state = 'running'"
        )
        return [Held(str(t), int(str(e)), str(w), str(p)) for t, e, w, p in rows]

    def cordoned(self) -> set[str]:
        """Uids of pods that may claim nothing."""
        return {str(uid) for (uid,) in self._rows("SELECT pod_uid FROM slackwater.cordon WHERE since IS NOT NULL")}

    def queued(self) -> int:
        return int(str(self._rows("SELECT count(*) FROM slackwater.claim WHERE state = 'queued'")[0][0]))

    def slots(self) -> dict[str, int]:
        """Members per slot set, expired ones left out by the server's own clock."""
        host, port = self._reach.address("redis")
        with redis.Redis(host=host, port=port, socket_timeout=5, decode_responses=True) as server:
            seconds, micros = server.time()
            now = seconds * 1000 + micros // 1000
            sets = [k for k in server.scan_iter("slackwater:slots:*") if server.type(k) == "zset"]
            return {key: server.zcount(key, now, "+inf") for key in sets}
