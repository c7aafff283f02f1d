"""Why a pod is still here: pod + pool → one paragraph. Rule: it names what is waited for, and who has to move.

Questions in the order in which one answer makes the next one idle: is it gone already · is it being deleted · has it
ended · does it drain · should it drain · does it work at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from slackwater_operator import reading
from slackwater_operator.cli.survey import (
    Raw,
    Sight,
    condition,
    goings,
    rollout_of,
    spec_of,
    status_of,
    up_to_date,
)
from slackwater_operator.cli.words import clean, clock, count, span
from slackwater_operator.names import Cause, Condition
from slackwater_operator.seen import Pod
from slackwater_operator.spec import Admission
from slackwater_operator.status import MAX_DRAINING

_LATE = timedelta(seconds=60)

_CAUSES = {
    Cause.ROLLOUT: "because another revision replaces it",
    Cause.SCALE_DOWN: "because the pool was scaled down",
    Cause.NODE_DRAIN: "because its node is going",
    Cause.SPOT: "because its node has been given notice by the provider",
    Cause.ADMIN: "because somebody asked for it (kubectl slackwater drain)",
    Cause.BROKEN: "because it never came to work and its revision is no longer wanted",
    Cause.TERMINATED: "because somebody deleted it, or its worker was told to stop",
    Cause.STUBBORN: "because a task in it did not stop when it was cancelled",
    Cause.GONE: "because it has ended",
}


class Because(StrEnum):
    """The answer in one word, for programs."""

    NO_POOL = "NoPool"
    FINALIZERS = "Finalizers"
    STOPPING = "Stopping"
    NOT_CONFIRMED = "NotConfirmed"
    ENDED = "Ended"
    STORE_UNREACHABLE = "StoreUnreachable"
    WORKING = "Working"
    OVERDUE = "Overdue"
    NO_LEASE = "NoLease"
    NOT_CORDONED = "NotCordoned"
    NOT_SEEN = "NotSeen"
    PAUSED = "Paused"
    ROLLOUT_FAILED = "RolloutFailed"
    PARTITION = "Partition"
    WAITS_ITS_TURN = "WaitsItsTurn"
    IN_TROUBLE = "InTrouble"
    WANTED = "Wanted"


@dataclass(frozen=True)
class Answer:
    because: Because
    text: str


def why(pod: Raw, pool: Raw | None, now: datetime) -> Answer:
    """`pool` is the one that owns the pod; None if it is gone."""
    seen = reading.pod(pod)
    if seen.deleting is not None:
        return _deleted(seen, pool, now)
    if pool is None:
        return Answer(
            Because.NO_POOL,
            f"{seen.name} belongs to a WorkerPool that no longer exists. Kubernetes' garbage collector deletes it; it"
            " then drains as its grace period allows.",
        )
    sight = Sight(seen, goings(pool).get(seen.uid))
    if seen.ended:
        said = f": {clean(seen.trouble.message)}" if seen.trouble else ""
        return Answer(
            Because.ENDED,
            f"{seen.name} has ended ({seen.phase}{said}). The operator deletes it when the store has taken back what"
            f" it held{_not_while_blind(pool)}.",
        )
    if sight.cause:
        return _drains(sight, pool, now)
    return _stays(sight, pool)


def _deleted(pod: Pod, pool: Raw | None, now: datetime) -> Answer:
    assert pod.deleting is not None
    end = clock(pod.deleting, now)
    held = f" It has the finalizers {', '.join(pod.finalizers)}." if pod.finalizers else ""
    if pod.finalizers and not pod.running:
        return Answer(
            Because.FINALIZERS,
            f"{pod.name} was deleted and its worker no longer runs. Its object stays until whoever set the finalizers"
            f" {', '.join(pod.finalizers)} takes them off; Slackwater sets none on pods.",
        )
    if now > pod.deleting + _LATE:
        return Answer(
            Because.NOT_CONFIRMED,
            f"{pod.name} was deleted and its grace period ended at {end}, {span(now - pod.deleting)} ago, but the"
            f" kubelet of node {pod.node or 'unknown'} has not confirmed its end. Look at that node: it is probably"
            f" cut off or powered off.{held}",
        )
    going = goings(pool).get(pod.uid) if pool is not None else None
    leases = f" It held {count(going.leases, 'lease')} when the operator last looked." if going else ""
    return Answer(
        Because.STOPPING,
        f"{pod.name} is being deleted: its worker lets running tasks end, and the kubelet kills what is left at"
        f" {end}.{leases}{held}",
    )


def _drains(sight: Sight, pool: Raw, now: datetime) -> Answer:
    pod, going = sight.pod, sight.going
    drains = f"{pod.name} is draining {_cause(sight.cause, pool)}"
    if _blind(pool):
        return Answer(
            Because.STORE_UNREACHABLE,
            f"{drains}, but the store gives the operator no answer"
            f" ({clean(condition(pool, Condition.STORE_REACHABLE).get('message', ''))}). Without the store nobody knows"
            " what the pod works on, so nothing is deleted until it answers again.",
        )
    if going is None:
        full = len(status_of(pool).get("draining") or []) >= MAX_DRAINING
        rest = (
            f"status.draining names only the first {MAX_DRAINING} pods, and this one is not among them."
            if full
            else "The operator has not reported its cordon in the store yet; that takes a round. If it stays so, look"
            " whether the operator runs."
        )
        return Answer(Because.NOT_CORDONED, f"{drains}. {rest}")
    since = f" since {clock(going.since, now)}" if going.since else ""
    if not going.leases:
        return Answer(
            Because.NO_LEASE,
            f"{drains}{since}. It holds no lease any more: the operator condemns it and deletes it in its next rounds.",
        )
    holds = f"{drains}{since}. It takes no new task and still works on {count(going.leases, 'lease')}"
    if going.deadline is None:
        limit = ", and waits for them without a deadline (drain.onDeadline: Wait)."
    elif now > going.deadline + _LATE:
        return Answer(
            Because.OVERDUE,
            f"{holds}. Its deadline passed at {clock(going.deadline, now)}, {span(now - going.deadline)} ago: the"
            " worker hands its tasks back, and what it does not hand back the operator takes away. If that does not"
            " happen within a minute or two, look at the operator's log and the pool's conditions.",
        )
    else:
        at = clock(going.deadline, now)
        left = f"{span(going.deadline - now)} from now" if going.deadline > now else "now"
        limit = f". At {at} ({left}) what is left is handed back to the queue."
    expected = f" By its tasks' usual run time it is free about {clock(going.expected, now)}." if going.expected else ""
    return Answer(Because.WORKING, f"{holds}{limit}{expected}")


def _cause(cause: str, pool: Raw) -> str:
    if cause == Cause.SCALE_DOWN.value and spec_of(pool).get("admission") == Admission.HOLD_AND_DRAIN.value:
        return "because the pool's admission is HoldAndDrain"
    return next((text for known, text in _CAUSES.items() if known == cause), f"because of {cause}")


def _stays(sight: Sight, pool: Raw) -> Answer:
    pod, status = sight.pod, status_of(pool)
    name, wanted = pool["metadata"]["name"], status.get("updateRevision", "")
    if not up_to_date(pool):
        return Answer(
            Because.NOT_SEEN,
            f"{pod.name} is not draining, and the operator has not seen the latest spec of {name} yet. If that lasts"
            " for more than some seconds, look whether the operator runs and watches this namespace.",
        )
    if pod.revision != wanted:
        return _old(pod, pool, wanted)
    if pod.trouble is not None and not pod.ready:
        return Answer(
            Because.IN_TROUBLE,
            f"{pod.name} is of the wanted revision {wanted} but does not come to work: {clean(pod.trouble.reason)}:"
            f" {clean(pod.trouble.message)}. It stays, since the pool wants it; a rollout that does not come to work"
            f" fails after rollout.progressDeadline ({rollout_of(pool).get('progressDeadline', '10m')}).",
        )
    replicas, desired = int(status.get("replicas", 0)), int(spec_of(pool).get("replicas", 1))
    present = f" and has {replicas} at present" if replicas > desired else ""
    work = " It is at work, or was within the last minute." if pod.protected else ""
    return Answer(
        Because.WANTED,
        f"{pod.name} is not draining: it is of the wanted revision {wanted}, and {name} wants"
        f" {count(desired, 'replica')}{present}.{work}",
    )


def _old(pod: Pod, pool: Raw, wanted: str) -> Answer:
    begins = f"{pod.name} is not draining. It is of revision {pod.revision}, and {wanted} is wanted"
    failed = condition(pool, Condition.ROLLOUT_FAILED)
    rollout = rollout_of(pool)
    progress = condition(pool, Condition.PROGRESSING)
    if rollout.get("paused"):
        return Answer(
            Because.PAUSED, f"{begins}, but the rollout is paused (rollout.paused); kubectl slackwater resume goes on."
        )
    if _blind(pool):
        return Answer(
            Because.STORE_UNREACHABLE,
            f"{begins}, but the store gives the operator no answer, and until it does no pod is drained.",
        )
    if failed.get("status") == "True":
        return Answer(
            Because.ROLLOUT_FAILED,
            f"{begins}, but the rollout has failed ({failed.get('reason')}: {clean(failed.get('message', ''))}). Mend"
            " the template, or go back with kubectl slackwater rollback.",
        )
    kept = int(rollout.get("partition", 0))
    old = int(status_of(pool).get("replicas", 0)) - int(status_of(pool).get("updatedReplicas", 0))
    if old <= kept:
        return Answer(
            Because.PARTITION, f"{begins}, but rollout.partition keeps {count(kept, 'pod')} on the old revision."
        )
    waits = f" Progressing: {progress.get('reason')}: {clean(progress.get('message', ''))}." if progress else ""
    return Answer(
        Because.WAITS_ITS_TURN,
        f"{begins}; its turn has not come. A rollout goes by rollout.maxSurge ({rollout.get('maxSurge', 1)}),"
        f" rollout.maxUnavailable ({rollout.get('maxUnavailable', 0)}) and drain.maxDraining"
        f" ({(spec_of(pool).get('drain') or {}).get('maxDraining', 3)}).{waits}",
    )


def _blind(pool: Raw) -> bool:
    return bool(condition(pool, Condition.STORE_REACHABLE).get("status") == "False")


def _not_while_blind(pool: Raw) -> str:
    return "; at present the store gives no answer, so nothing is deleted" if _blind(pool) else ""
