"""When a plan may change though nothing happened. Rule: the earliest instant that something waits for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from slackwater_operator.drain import LOST_AFTER, OVERDUE_AFTER, UNREADY_IS_BROKEN_AFTER, Look, Standing
from slackwater_operator.revisions import Revisions, deadline_passes_at
from slackwater_operator.seen import Observation
from slackwater_operator.spec import PoolSpec

SOONEST = timedelta(seconds=0.5)
WHILE_DRAINING = timedelta(seconds=5)
"""The backstop of NOTIFY while a pod is waited for."""
AT_MOST = timedelta(seconds=30)


def look_again(
    spec: PoolSpec, seen: Observation, views: tuple[Look, ...], chosen: Revisions, now: datetime
) -> timedelta:
    waits = [instant - now for instant in _instants(spec, seen, views, chosen) if instant > now]
    draining = any(v.standing in (Standing.DRAINING, Standing.ENDED, Standing.TERMINATING) for v in views)
    return max(SOONEST, min([*waits, WHILE_DRAINING if draining else AT_MOST]))


def _instants(spec: PoolSpec, seen: Observation, views: tuple[Look, ...], chosen: Revisions) -> Iterator[datetime]:
    wanted = next((r for r in seen.revisions if r.name == chosen.written), None)
    for view in views:
        if view.cordon is not None and view.cordon.deadline is not None and view.leases:
            yield view.cordon.deadline
            yield view.cordon.deadline + OVERDUE_AFTER
        for lease in view.leases:
            yield lease.since + timedelta(seconds=10)
        if view.pod.protected and not view.leases:
            yield seen.last_busy.get(view.pod.uid, view.pod.created) + timedelta(seconds=60)
        if view.standing is not Standing.ACTIVE:
            continue
        if view.serving and view.pod.ready_changed is not None:
            yield view.pod.ready_changed + spec.rollout.min_ready
        if not view.serving:
            yield (view.pod.ready_changed or view.pod.created) + UNREADY_IS_BROKEN_AFTER
        if not view.reachable:
            yield (seen.heard_of(view.pod.uid) or view.pod.created) + LOST_AFTER
        if wanted is not None and view.pod.revision == wanted.name and not view.serving:
            yield deadline_passes_at(spec, wanted, view)
