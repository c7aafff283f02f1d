"""A record of what happened to pods while something else went on.

Rule: it samples twice a second from a thread of its own and keeps facts, not verdicts; a fact that matters (a deletion)
is written down with the leases that the store showed at that time. A second thread follows the API server's watch,
because how a container ended stands in its pod for a moment only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kit.kube import Kube, Object, is_ready, worker_status
from tests.kit.storeview import Held, StoreView

DRAIN_CAUSE = "slackwater.dev/drain-cause"
REVISION = "slackwater.dev/revision"


@dataclass(frozen=True)
class Seen:
    """One pod in one sample."""

    name: str
    uid: str
    revision: str
    ready: bool
    draining: bool
    terminating: bool
    ended: bool
    """Its container has stopped; only the object is still there."""
    restarted: bool = False

    @property
    def serving(self) -> bool:
        return self.ready and not self.draining and not self.terminating


@dataclass(frozen=True)
class Sample:
    at: float
    pods: tuple[Seen, ...]


@dataclass
class Record:
    samples: list[Sample] = field(default_factory=list)
    deleted_busy: list[tuple[Seen, list[Held]]] = field(default_factory=list)
    exit_codes: dict[str, list[int]] = field(default_factory=dict)
    """Pod uid → how its worker containers ended, in order."""
    errors: list[str] = field(default_factory=list)

    def lowest_serving(self) -> int:
        return min((sum(p.serving for p in s.pods) for s in self.samples), default=0)

    def most_pods(self) -> int:
        """Terminating ones included; an object whose container has stopped takes no room."""
        return max((sum(not p.ended for p in s.pods) for s in self.samples), default=0)


def seen(pod: Object) -> Seen:
    meta = pod["metadata"]
    return Seen(
        meta["name"], meta["uid"], meta.get("labels", {}).get(REVISION, ""), is_ready(pod),
        DRAIN_CAUSE in meta.get("annotations", {}), "deletionTimestamp" in meta,
        _stopped(worker_status(pod)), worker_status(pod).get("restartCount", 0) > 0,
    )  # fmt: skip


def _stopped(worker: Object) -> bool:
    """It has run, and does not now; the kubelet may be waiting to start it again."""
    state = worker.get("state", {})
    return "terminated" in state or ("waiting" in state and worker.get("restartCount", 0) > 0)


class Watcher:
    """`with Watcher(...) as record:` samples until the block ends."""

    def __init__(
        self,
        kube: Kube,
        store: StoreView | None,
        selector: str,
        tell: Callable[[Sample], None] = lambda _: None,
    ) -> None:
        self._kube, self._store, self._selector, self._tell = kube, store, selector, tell
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="pod-sampler", daemon=True),
            threading.Thread(target=self._follow, name="pod-watch", daemon=True),
        ]
        self.record = Record()

    def __enter__(self) -> Record:
        for thread in self._threads:
            thread.start()
        return self.record

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _follow(self) -> None:
        ended: set[str] = set()
        while not self._stop.is_set():
            try:
                for pod in self._kube.follow_pods(self._selector, seconds=2):
                    status = worker_status(pod)
                    for state in (status.get("lastState", {}), status.get("state", {})):
                        end = state.get("terminated")
                        if end and end.get("containerID", "") not in ended:
                            ended.add(end.get("containerID", ""))
                            self.record.exit_codes.setdefault(pod["metadata"]["uid"], []).append(end["exitCode"])
            except Exception as error:  # as in _run
                self.record.errors.append(f"watch: {type(error).__name__}: {error}")
                self._stop.wait(0.5)

    def _run(self) -> None:
        going: set[str] = set()
        while not self._stop.is_set():
            try:
                self._sample(going)
            except Exception as error:  # servers are stopped on purpose in some tests; the gap is on record
                self.record.errors.append(f"{type(error).__name__}: {error}")
            self._stop.wait(0.5)

    def _sample(self, going: set[str]) -> None:
        # leases first: one that is seen here and belongs to a pod deleted in the later list was held before the delete
        # or after it; either way the pod was busy when it went
        held = self._store.held() if self._store else []
        pods = tuple(seen(p) for p in self._kube.pods(self._selector))
        for pod in pods:
            if pod.terminating and pod.uid not in going:
                going.add(pod.uid)
                mine = [h for h in held if h.pod_uid == pod.uid]
                still = {(h.task, h.epoch) for h in self._store.held()} if self._store and mine else set()
                mine = [h for h in mine if (h.task, h.epoch) in still]
                if mine:
                    self.record.deleted_busy.append((pod, mine))
        sample = Sample(time.time(), pods)
        self.record.samples.append(sample)
        self._tell(sample)
