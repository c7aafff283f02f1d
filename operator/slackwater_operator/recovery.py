"""Whose claims have no living owner. Rule 9: death needs a witness, and a missing object is none.

The witness is the kubelet's terminated state whose message names that worker's id. A reason of
ContainerStatusUnknown is the kubelet's own guess after it lost the container, so it proves nothing.
"""

from __future__ import annotations

from slackwater_operator.actions import Vanish, Witness
from slackwater_operator.seen import Observation

NO_WITNESS = "ContainerStatusUnknown"


def witnessed(seen: Observation) -> list[Witness]:
    found = []
    for pod in seen.pods:
        ended = {e.worker_id: e for e in pod.exits if e.worker_id and e.reason != NO_WITNESS}
        for worker in seen.workers_by_pod.get(pod.uid, ()):
            exit_ = ended.get(worker.id)
            holds = any(lease.worker_id == worker.id for lease in seen.leases(pod.uid))
            if exit_ and (holds or not worker.ended):
                why = f"the kubelet saw its container end: {exit_.reason or 'Error'}, exit code {exit_.code}"
                found.append(Witness(pod.uid, worker.id, why))
    return found


def vanished(seen: Observation) -> list[Vanish]:
    """Workers that never ended, of pods that aren't there. The actor asks the API server itself before it cordons."""
    if seen.store is None:
        return []
    there = {pod.uid for pod in seen.pods}
    gone: dict[str, str] = {}
    for worker in seen.store.workers:
        if not worker.ended and worker.pod_uid not in there and worker.pod_uid not in seen.store.cordons:
            gone[worker.pod_uid] = worker.pod_name
    return [Vanish(uid, name, "the pod object is gone") for uid, name in sorted(gone.items())]
