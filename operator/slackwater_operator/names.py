"""Names that people and programs see. Rule: a label, annotation, cause or reason is spelled here and nowhere else."""

from __future__ import annotations

from enum import StrEnum

GROUP = "slackwater.dev"
VERSION = "v1alpha1"
KIND = "WorkerPool"
PLURAL = "workerpools"
WORKER_CONTAINER = "worker"

LABEL_POOL = f"{GROUP}/pool"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_PROTECTED = f"{GROUP}/protected"
"""On a pod whose lease is old enough to hurt: what the pool's disruption budget selects."""

ANNOTATION_CAUSE = f"{GROUP}/drain-cause"
"""The intent: on the pod before the store's cordon, off it before the cordon is lifted."""
ANNOTATION_SEQUENCE = f"{GROUP}/drain-sequence"
ANNOTATION_COMPLETED = f"{GROUP}/completed-at"
ANNOTATION_FAILED = f"{GROUP}/failed-at"
ANNOTATION_CLOCK = f"{GROUP}/progress-clock"
AUTOSCALER_KEEP = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
CLOCK_STOPPED = "stopped"
HEALTH_PORT = 8081
RUN_DIR = "/run/slackwater"


class Cause(StrEnum):
    """Why a pod is cordoned."""

    ROLLOUT = "Rollout"
    SCALE_DOWN = "ScaleDown"
    NODE_DRAIN = "NodeDrain"
    SPOT = "Spot"
    ADMIN = "Admin"
    BROKEN = "Broken"
    """A pod of a revision that nobody wants and that never came to work; outside a rollout's bound."""
    TERMINATED = "Terminated"
    """Somebody deleted the pod, or its worker got a SIGTERM."""
    STUBBORN = "Stubborn"
    GONE = "Gone"
    """The pod has ended or its object vanished; it can't come back."""


RECALLABLE = frozenset({Cause.ROLLOUT, Cause.SCALE_DOWN})
"""Causes that only a wish of ours made, so that another wish may undo them."""


class Condition(StrEnum):
    READY = "Ready"
    PROGRESSING = "Progressing"
    DRAINING = "Draining"
    STORE_REACHABLE = "StoreReachable"
    ROLLOUT_FAILED = "RolloutFailed"
    EVICTION_BLOCKED = "EvictionBlocked"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Closed: conditions, events, logs and metrics use these words."""

    # Ready
    ALL_READY = "AllReady"
    SCALED_TO_ZERO = "ScaledToZero"
    TOO_FEW_READY = "TooFewReady"
    # Progressing, Reconciling
    COMPLETE = "Complete"
    ROLLING_OUT = "RollingOut"
    SCALING = "Scaling"
    WAITING_FOR_DRAIN = "WaitingForDrain"
    CANARY = "Canary"
    PAUSED = "Paused"
    ROLLED_BACK = "RolledBack"
    DELETING = "Deleting"
    IMAGE_PULL = "ImagePull"
    CRASH_LOOP = "CrashLoop"
    CONFIG_ERROR = "ConfigError"
    UNSCHEDULABLE = "Unschedulable"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    NODES_LOST = "NodesLost"
    SETTLED = "Settled"
    # Draining
    PODS_DRAINING = "PodsDraining"
    DEADLINE_PASSED = "DeadlinePassed"
    HELD_BY_FINALIZERS = "HeldByFinalizers"
    NONE_DRAINING = "NoneDraining"
    # StoreReachable
    REACHABLE = "Reachable"
    UNREACHABLE = "Unreachable"
    # EvictionBlocked
    SECOND_BUDGET = "SecondBudget"
    NOT_BLOCKED = "NotBlocked"
    # Stalled, and what the API server said
    NOT_STALLED = "NotStalled"
    INVALID_SPEC = "InvalidSpec"
    POD_REJECTED = "PodRejected"
    QUOTA_EXCEEDED = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    NODES_UNREADABLE = "NodesUnreadable"
    API_UNAVAILABLE = "ApiUnavailable"
    NAME_TAKEN = "NameTaken"
    REFUSED = "Refused"
    # RolloutFailed
    NOT_FAILED = "NotFailed"
