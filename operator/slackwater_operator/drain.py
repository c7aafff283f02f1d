"""A pod's standing, and the next step of one that is to go. Rule: unknown is busy, and only the store frees a pod.

annotation → cordon → condemned by a later statement that found no running claim → label off → delete.
The node's own end and the autoscalers' marks are read here too: they are what forces a drain.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum, auto

from slackwater_operator.names import Cause
from slackwater_operator.seen import Cordon, Lease, Node, Observation, Pod, Taint

LOST_AFTER = timedelta(seconds=60)
OVERDUE_AFTER = timedelta(seconds=15)
"""The worker hands back at the deadline; what is left this much later is taken away."""
UNREADY_IS_BROKEN_AFTER = timedelta(seconds=60)
FAR_FUTURE = datetime.max.replace(tzinfo=UTC)

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
"""How `spec.unschedulable` is read, whether or not the node controller has written it as a taint yet."""
_SPOT_MARKS = frozenset({"aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination"})
_GOING_MARKS = frozenset(
    {
        UNSCHEDULABLE.key,
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "ToBeDeletedByClusterAutoscaler",
        "node.cloudprovider.kubernetes.io/shutdown",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/rebalance-recommendation",
    }
)
_MAY_COME_BACK = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class Standing(Enum):
    ACTIVE = auto()
    DRAINING = auto()
    TERMINATING = auto()
    ENDED = auto()
    LOST = auto()


class Work(IntEnum):
    """How much a pod has to lose; the order in which pods go."""

    NOTHING = 0
    IDLE = 1
    BUSY = 2


class Step(Enum):
    """What a draining pod needs next."""

    CORDON = auto()
    WAIT = auto()
    TAKE_AWAY = auto()
    CONDEMN = auto()
    DELETE = auto()
    NONE = auto()


def going(pod: Pod, node: Node | None) -> Cause | None:
    """The cause if this node is about to go and will take the pod with it.

    What the pod tolerates for ever is no reason: its replacement would be put on the same node again.
    """
    if node is None:
        return None
    if node.deleting:
        return Cause.NODE_DRAIN
    found: Cause | None = None
    for taint in node.taints:
        marked = taint.key in _SPOT_MARKS or taint.key in _GOING_MARKS
        evicts = taint.effect == "NoExecute" and taint.key not in _MAY_COME_BACK
        if not (marked or evicts) or any(t.covers(taint) and t.seconds is None for t in pod.tolerations):
            continue
        if taint.key in _SPOT_MARKS:
            return Cause.SPOT
        found = Cause.NODE_DRAIN
    return found


@dataclass(frozen=True)
class Look:
    """One pod with everything that is known of it."""

    pod: Pod
    standing: Standing
    cordon: Cordon | None
    leases: tuple[Lease, ...]
    registered: bool
    going: Cause | None
    reachable: bool
    work: Work
    lift: bool
    """An operator's cordon whose annotation is gone: somebody called the drain off."""

    @property
    def cause(self) -> str:
        """The present intent if there is one, else what the cordon was made for."""
        return self.pod.cause or (self.cordon.cause if self.cordon else "")

    @property
    def condemned(self) -> bool:
        return self.cordon is not None and self.cordon.condemned

    @property
    def serving(self) -> bool:
        """Registered, ready, and free to claim. A cordon about to be lifted counts as lifted: a failure to lift it
        ends the round before anything else is done."""
        cordoned = self.cordon is not None and not self.lift
        return self.standing is Standing.ACTIVE and self.pod.ready and self.registered and not cordoned

    def available(self, now: datetime, min_ready: timedelta) -> bool:
        since = self.pod.ready_changed
        return self.serving and (not min_ready or (since is not None and now - since >= min_ready))

    def holds_nothing(self, now: datetime) -> bool:
        """Draining it costs no capacity: it never came to work, or has been unready for a while."""
        if self.work is Work.NOTHING:
            return True
        since = self.pod.ready_changed or self.pod.created
        return not self.serving and now - since >= UNREADY_IS_BROKEN_AFTER

    def free_at(self) -> datetime:
        """When it will probably be free; far off if that is not known."""
        if not self.leases:
            return FAR_FUTURE if self.work is Work.BUSY else datetime.min.replace(tzinfo=UTC)
        return max(lease.expected_end or FAR_FUTURE for lease in self.leases)

    def work_began(self) -> float:
        return min((lease.since.timestamp() for lease in self.leases), default=0.0)


def look(seen: Observation, pod: Pod, now: datetime) -> Look:
    node = seen.node(pod)
    cordon, leases = seen.cordon(pod.uid), seen.leases(pod.uid)
    cause = going(pod, node)
    reachable = seen.nodes is None or not pod.node or (node is not None and node.reachable)
    lift = (
        cordon is not None
        and cordon.ours
        and pod.cause is None
        and not cordon.condemned
        and cause is None
        and pod.deleting is None
        and not pod.ended
    )
    standing = _standing(seen, pod, node, now, cordoned=cordon is not None and not lift, reachable=reachable)
    registered = seen.registered(pod.uid)
    return Look(pod, standing, cordon, leases, registered, cause, reachable, _work(pod, leases, registered), lift)


def _standing(
    seen: Observation, pod: Pod, node: Node | None, now: datetime, *, cordoned: bool, reachable: bool
) -> Standing:
    if pod.deleting is not None:
        return Standing.TERMINATING
    if pod.ended:
        return Standing.ENDED
    if cordoned or pod.cause is not None:
        return Standing.DRAINING
    if seen.store is not None and not reachable and _silent(seen, pod, node, now):
        return Standing.LOST
    return Standing.ACTIVE


def _silent(seen: Observation, pod: Pod, node: Node | None, now: datetime) -> bool:
    if any(lease.live(now) for lease in seen.leases(pod.uid)):
        return False
    heard = seen.heard_of(pod.uid) or (node.changed if node else None) or pod.created
    return now - heard >= LOST_AFTER


def _work(pod: Pod, leases: tuple[Lease, ...], registered: bool) -> Work:
    if leases:
        return Work.BUSY
    if pod.broken or (pod.never_started and not registered):
        return Work.NOTHING
    return Work.IDLE if registered else Work.BUSY


def next_step(view: Look, now: datetime) -> Step:
    """Of a pod that drains, has ended or terminates. The safety rule first: no cordon, no condemnation, no delete."""
    cordon = view.cordon
    if cordon is None:
        return Step.CORDON
    terminating = view.standing is Standing.TERMINATING
    if cordon.condemned:
        return Step.NONE if terminating else Step.DELETE
    if view.leases:
        overdue = cordon.deadline is not None and now >= cordon.deadline + OVERDUE_AFTER
        return Step.TAKE_AWAY if overdue else Step.WAIT
    # A terminating pod too: its worker may have been started too late to hear the SIGTERM, and leaves when condemned.
    return Step.CONDEMN
