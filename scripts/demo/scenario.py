"""The main job under load: submit, roll, kill, scale up, scale down, wait.

Rule: it acts and records; `verdict` judges.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from scripts.demo.plan import (
    CONCURRENCY,
    DOWN,
    NEW_IMAGE,
    RECLAIM_SECONDS,
    REPLICAS,
    SECONDS,
    SLOT_SECONDS,
    TASKS,
    UP,
    renders,
)
from scripts.demo.screen import Screen
from scripts.demo.subjects import POD_UID, Subject
from tests.kit.gateway import ENDED, Gateway
from tests.kit.kill import kill_worker
from tests.kit.kube import Kube
from tests.kit.provider import Provider, Verdict, judge
from tests.kit.storeview import StoreView
from tests.kit.waiting import TimedOut, until
from tests.kit.watch import Record, Sample, Watcher


@dataclass
class Told:
    """What happened, for the verdict."""

    states: dict[str, str] = field(default_factory=dict)
    provider: Verdict | None = None
    pods: Record = field(default_factory=Record)
    killed_worker_runs: int = 0
    killed_workers: set[str] = field(default_factory=set)
    back_seconds: float | None = None
    slots_left: int = 0
    slots_as_running: bool = False
    settled: bool = False
    seconds: float = 0


@dataclass(frozen=True)
class Stage:
    """The parts on the cluster that the scenario speaks to."""

    kube: Kube
    gateway: Gateway
    provider: Provider
    store: StoreView
    screen: Screen


def play(subject: Subject, stage: Stage) -> Told:
    """The whole scenario once; raises TimedOut when a step never comes."""
    begun, told, screen = time.monotonic(), Told(), stage.screen
    subject.create()
    until(f"{REPLICAS} ready pods", 120, lambda: subject.settled(REPLICAS))
    screen.step(f"{subject.title}: {TASKS} renders of {SECONDS[0]} to {SECONDS[1]} s over HTTP")
    ids = [
        stage.gateway.submit("render", {"seconds": r.seconds, "frame": n}, key=r.key, queue=subject.queue)
        for n, r in enumerate(renders(f"{subject.queue}-{int(time.time())}"))
    ]
    watcher = Watcher(stage.kube, stage.store, subject.selector, _teller(subject, stage, ids))
    with watcher as told.pods:
        full = REPLICAS * CONCURRENCY
        until(f"all {full} places busy", 60, lambda: len(_log(stage, ids).interrupted) >= full)
        screen.step(f"new image {NEW_IMAGE} while all {full} places are busy")
        subject.set_image(NEW_IMAGE)
        _kill_one(subject, stage, ids, told)
        screen.step(f"scale {REPLICAS} → {UP}")
        subject.scale(UP)
        until(f"{UP} pods serving", 120, lambda: sum(p.serving for p in _last(told.pods).pods) >= UP)
        told.slots_as_running = _slots_agree(stage)
        screen.step(f"scale {UP} → {DOWN}")
        subject.scale(DOWN)
        told.states = stage.gateway.wait_ended(ids, 300)
        screen.step(f"all {TASKS} tasks ended; waiting for the pods to settle at {DOWN}")
        told.settled = _in_time("the pods settled", 180, lambda: subject.settled(DOWN))
    _in_time("no slot left over", SLOT_SECONDS, lambda: not sum(stage.store.slots().values()))
    told.slots_left = sum(stage.store.slots().values())
    told.provider = _log(stage, ids)
    told.seconds = time.monotonic() - begun
    return told


def _log(stage: Stage, ids: list[str]) -> Verdict:
    """The provider's log about our renders alone: others may have used the cluster before."""
    ours = set(ids)
    return judge(entry for entry in stage.provider.log() if entry["task"] in ours)


def _kill_one(subject: Subject, stage: Stage, ids: list[str], told: Told) -> None:
    """SIGKILL the process of a busy pod that nobody is about to delete; measure until its renders run again."""
    pods = {p["metadata"]["uid"]: p for p in stage.kube.pods(subject.selector)}
    busy = Counter(h.pod_uid for h in stage.store.held())
    staying = [p for p in pods.values() if "deletionTimestamp" not in p["metadata"]]
    victim = max(staying, key=lambda p: busy[p["metadata"]["uid"]])
    uid = victim["metadata"]["uid"]
    before = [h for h in stage.store.held() if h.pod_uid == uid]
    stage.screen.step(f"SIGKILL to the worker of {victim['metadata']['name']}; {len(before)} renders run there")
    told.killed_workers = {h.worker for h in before}
    died_at = kill_worker(stage.kube, victim, mark=f"{POD_UID}={uid}")
    killed = {(r.task, r.epoch) for r in _log(stage, ids).interrupted if r.worker in told.killed_workers}
    told.killed_worker_runs = len(killed)

    def back() -> list[float] | None:
        again = _log(stage, ids).started_at
        firsts = [min((at for r, at in again.items() if r.task == t and r.epoch > e), default=None) for t, e in killed]
        return None if None in firsts else [at for at in firsts if at is not None]

    if not killed:
        return
    try:
        told.back_seconds = max(until("the killed worker's renders run again", RECLAIM_SECONDS, back)) - died_at
    except TimedOut:
        return
    stage.screen.note(f"its {len(killed)} renders ran again {told.back_seconds:.1f} s after its death")


def _slots_agree(stage: Stage) -> bool:
    """Slots in Redis = running claims, seen at one moment within the slot bound."""

    def ask() -> bool:
        before, slots, after = stage.store.held(), stage.store.slots(), stage.store.held()
        return len(before) == len(after) == sum(n for key, n in slots.items() if ":pool:" in key)

    return _in_time("slots = running tasks", SLOT_SECONDS, ask)


def _teller(subject: Subject, stage: Stage, ids: list[str]) -> Callable[[Sample], None]:
    """A line each time that something changed."""
    last: list[str] = [""]

    def tell(sample: Sample) -> None:
        states = Counter(stage.gateway.states(ids).values())
        work = ", ".join(f"{states[s]} {s}" for s in ("queued", "running", *sorted(ENDED)) if states[s])
        by_revision = Counter(p.revision or "pods" for p in sample.pods)
        pods = ", ".join(f"{n}x {revision}" for revision, n in sorted(by_revision.items()))
        going = sum(p.draining or p.terminating for p in sample.pods)
        says = subject.says()
        line = f"{work:<38} {pods}{f' ({going} draining)' if going else ''}{f' · {says}' if says else ''}"
        if line != last[0]:
            last[0] = line
            stage.screen.note(line)

    return tell


def _last(record: Record) -> Sample:
    return record.samples[-1] if record.samples else Sample(0, ())


def _in_time(what: str, seconds: float, ask: Callable[[], object]) -> bool:
    """Whether it came in time; the verdict names what did not."""
    try:
        until(what, seconds, ask)
    except TimedOut:
        return False
    return True
