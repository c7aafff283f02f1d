"""A rollout over busy pods, carried out by operators that are killed one after the other, and what became of it.

Rule: whatever is wrong is told as a list of sentences, so that a long run names every bad point and not the first only.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.audit import writes
from tests.kit.doomed_operator import is_step, mutates
from tests.kit.kube import Object
from tests.kit.operators import ACCOUNT, Call, Doom, Operators, Process
from tests.kit.pools import V1, V2, PoolUnderTest, Stage, manifest
from tests.kit.provider import judge
from tests.kit.waiting import until
from tests.kit.watch import DRAIN_CAUSE, Record

SURGE, UNAVAILABLE, DRAINING = 1, 1, 2
SPEC: Object = {
    "rollout": {"maxSurge": SURGE, "maxUnavailable": UNAVAILABLE},
    "drain": {"deadline": "10m", "maxDraining": DRAINING},
}


@dataclass
class Outcome:
    """`wrong` is empty when the rollout ended as it would have without a kill."""

    wrong: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    """Where operators met their doom."""
    missed: list[Doom] = field(default_factory=list)
    """Dooms that were not met, because the work was done before."""
    calls: list[Call] = field(default_factory=list)
    """Of the last operator."""


class Scene:
    """One pool whose pods are made busy again and again, and rolled to the other image each time."""

    def __init__(self, pool: PoolUnderTest, operators: Operators, replicas: int, audit: Path) -> None:
        self.pool, self.operators, self.replicas, self._audit = pool, operators, replicas, audit
        self._images = itertools.cycle([V2, V1])
        self._rounds = itertools.count(1)

    def rollout(self, dooms: Iterable[Doom], *, seconds: tuple[float, float], patience: float = 120) -> Outcome:
        """Each doom is the next operator's; one without comes last. Tasks take from `seconds[0]` to `seconds[1]`."""
        pool, n = self.pool, self.replicas
        first, last = seconds
        tasks = [pool.render(round(first + (last - first) * i / max(1, n - 1), 1)) for i in range(n)]
        pool.until_each_busy(n)
        old = {p["metadata"]["uid"]: str(p["metadata"]["name"]) for p in pool.pods()}
        start = self._audit.stat().st_size
        outcome = Outcome()
        with pool.watched() as record:
            self._release()
            for doom in dooms:
                with self.operators.running(doom) as process:
                    self._dead_or_complete(process, patience)
                if not process.died_at:
                    outcome.missed.append(doom)
                    if not self._complete():
                        outcome.wrong.append(f"an operator ended by itself: {tail(process)}")
                    break
                outcome.died.append(process.died_at)
            with self.operators.running() as process:
                until("the rollout is complete", patience, self._complete)
                outcome.calls = process.calls()
            states = pool.stage.gateway.wait_ended(tasks, patience)
        if set(states.values()) != {"done"}:
            outcome.wrong.append(f"tasks ended as {states}")
        outcome.wrong += self._about_work(set(tasks)) + self._about_pods(old, record, start)
        return outcome

    def _release(self) -> None:
        """The other image, and a revision that never was."""
        worker = "/spec/template/spec/containers/0"
        patch = [
            {"op": "replace", "path": f"{worker}/image", "value": next(self._images)},
            {"op": "replace", "path": f"{worker}/env/0/value", "value": str(next(self._rounds))},
        ]
        self.pool.stage.kube.kubectl("patch", "workerpool", self.pool.name, "--type=json", "-p", json.dumps(patch))

    def _dead_or_complete(self, process: Process, patience: float) -> None:
        until(f"dead, or the rollout done: {process.doom}", patience, lambda: not process.alive or self._complete())

    def _complete(self) -> bool:
        body = self.pool.body
        status = body.get("status", {})
        counts = [status.get(k) for k in ("replicas", "readyReplicas", "updatedReplicas")]
        done = self.pool.condition("Progressing").get("reason") == "Complete"
        going = status.get("drainingReplicas") or status.get("terminatingReplicas")
        observed = status.get("observedGeneration") == body["metadata"]["generation"]
        return bool(observed and done and not going and counts == [self.replicas] * 3) and (
            len(self.pool.pods()) == self.replicas
        )

    def _about_work(self, tasks: set[str]) -> list[str]:
        verdict = judge(e for e in self.pool.stage.provider.log() if e["task"] in tasks)
        wrong = [f"interrupted: {run}" for run in verdict.interrupted]
        if {(r.task, r.epoch) for r in verdict.runs} != {(t, 1) for t in tasks}:
            wrong.append(f"not one run with epoch 1 each: {verdict.runs}")
        if verdict.ends_by_task != dict.fromkeys(tasks, 1):
            wrong.append(f"not one end each: {verdict.ends_by_task}")
        if len(verdict.charges_by_key) != len(tasks) or verdict.paid_twice:
            wrong.append(f"not one charge each: {verdict.charges_by_key}")
        return wrong

    def _about_pods(self, old: dict[str, str], record: Record, start: int) -> list[str]:
        wrong = [f"deleted while busy: {pod.name} {held}" for pod, held in record.deleted_busy]
        n = self.replicas
        # A condemned worker leaves by itself. If the operator is killed before it deletes the pod, the kubelet starts
        # the container anew and it leaves again, holding nothing; the operator gives its room away the first time.
        pods = max(sum(not (p.ended or (p.draining and p.restarted)) for p in s.pods) for s in record.samples)
        if pods > n + SURGE + DRAINING:
            wrong.append(f"{pods} pods at once")
        active = max(sum(not (p.draining or p.terminating) for p in s.pods) for s in record.samples)
        if active > n + SURGE:
            wrong.append(f"{active} pods at once that did not drain")
        # 504: whoever asked was killed before the answer; the request may have been carried out all the same.
        mine = [
            w for w in writes(self._audit, account=ACCOUNT, start=start)
            if (w.accepted or w.code == 504) and w.resource == "pods" and w.name.startswith(f"{self.pool.name}-")
        ]  # fmt: skip
        created = {p.uid for s in record.samples for p in s.pods} - set(old)
        if len(created) != n or sum(w.verb == "create" and w.accepted for w in mine) > n:
            wrong.append(f"{len(created)} pods created, for which was asked: {mine}")
        deleted = {w.name for w in mine if w.verb == "delete"}
        if deleted != set(old.values()):
            wrong.append(f"pods deleted: {deleted}, and there had been {set(old.values())}")
        exits = {uid: record.exit_codes.get(uid, []) for uid in old}
        # A condemned worker leaves by itself; until the delete its container may be started anew, and leaves again.
        if any(set(codes) != {0} for codes in exits.values()):
            wrong.append(f"the old workers' exit codes: {exits}")
        living = {p["metadata"]["uid"]: p["metadata"] for p in self.pool.pods()}
        if len(living) != n or set(living) & set(old):
            wrong.append(f"afterwards there are {[m['name'] for m in living.values()]}")
        wrong += [f"{m['name']} is still marked" for m in living.values() if DRAIN_CAUSE in m.get("annotations", {})]
        wrong += [
            f"{living[uid]['name']} is still cordoned" for uid in living if uid in self.pool.stage.store.cordoned()
        ]
        return wrong


def tail(process: Process) -> str:
    return process.log.read_text()[-600:] if process.log.exists() else "no log"


def single_kills(calls: Iterable[Call], *, every: int = 1) -> list[Doom]:
    """Each mutating call of a dry run, before and after, and each read; or every so many of these points."""
    found = []
    for call in calls:
        whens = ("before", "after") if mutates(call.kind) else ("before",)
        found += [Doom(call.kind, call.number, when) for when in whens]
    return found[::every]


def sample(calls: list[Call]) -> list[list[Doom]]:
    """Rounds of two kinds each, before and after, so that every kind of mutating call of a dry run has both.

    What every start does comes before a step of the rollout, what a round does at its end comes after one.
    """
    most = Counter(c.kind for c in calls if mutates(c.kind))
    order = list(most)
    steps = [kind for kind in order if is_step(kind)]
    early = [kind for kind in order[: order.index(steps[0])] if not is_step(kind)]
    late = [kind for kind in order if kind not in (*steps, *early)]

    def both(kind: str | None) -> list[Doom]:
        if kind is None:
            return []
        second = min(2, most[kind]) if is_step(kind) else 1
        return [Doom(kind, 1, "before"), Doom(kind, second, "after")]

    first = [both(p) + both(s) for p, s in itertools.zip_longest(early, steps[: len(early)])]
    return first + [both(s) + both(p) for p, s in itertools.zip_longest(late, steps[len(early) :])]


def again_and_again(when: str, times: int = 500) -> Iterator[Doom]:
    """Operators that live for one or two steps. One step alone may be the repeat of its predecessor's last."""
    few = {"after": (1, 2), "before": (2, 3)}[when]
    return (Doom("step", number, when) for number in itertools.islice(itertools.cycle(few), times))


def scene_manifest(name: str, replicas: int) -> Object:
    made = manifest(name, replicas=replicas, concurrency=1, **SPEC)
    made["spec"]["template"]["spec"]["containers"][0]["env"].insert(0, {"name": "ROUND", "value": "0"})
    return made


@contextmanager
def scene(operators: Operators, stage: Stage, name: str, replicas: int, audit: Path) -> Iterator[Scene]:
    """A settled pool; gone after the block."""
    pool = PoolUnderTest(stage, name)
    stage.kube.apply(scene_manifest(name, replicas))
    try:
        with operators.running():
            pool.until_settled(replicas)
        yield Scene(pool, operators, replicas, audit)
    finally:
        pool.remove()
