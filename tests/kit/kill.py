"""SIGKILL of a worker's process on any cluster.

Rule: from outside its own PID namespace, as the kernel's OOM killer would: nothing inside can send process 1 a SIGKILL.
A short-lived privileged pod on the same node finds the process by the pod uid in its environment.
"""

from __future__ import annotations

from tests.kit.kube import Kube, Object
from tests.kit.waiting import until

FIND_AND_KILL = """
import os, signal, sys, time
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        environ = open(f"/proc/{pid}/environ", "rb").read()
        inside = [l for l in open(f"/proc/{pid}/status") if l.startswith("NSpid:")][0].split()[-1]
    except OSError:
        continue
    if sys.argv[1].encode() in environ and inside == "1" and b"SLACKWATER_TASKS=" in environ:
        os.kill(int(pid), signal.SIGKILL)
        print(time.time())
        break
else:
    sys.exit("no such process")
"""


def kill_worker(kube: Kube, pod: Object, *, mark: str) -> float:
    """Returns when it died, in seconds since 1970 by the node's clock.

    `mark`: NAME=value in the environment of this pod's worker alone, such as SLACKWATER_POD_UID=…
    """
    name = f"kill-{pod['metadata']['name']}"[:63]
    worker = next(c for c in pod["spec"]["containers"] if c["name"] == "worker")
    container = {
        "name": "kill",
        "image": worker["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/slackwater/bin/python", "-c", FIND_AND_KILL, mark],
        "securityContext": {"privileged": True, "runAsUser": 0},
    }
    kube.apply({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"hostPID": True, "restartPolicy": "Never", "nodeName": pod["spec"]["nodeName"],
                 "tolerations": [{"operator": "Exists"}], "containers": [container]},
    })  # fmt: skip

    def ended() -> str | None:
        phase = (kube.pod(name) or {}).get("status", {}).get("phase")
        return phase if phase in ("Succeeded", "Failed") else None

    phase = until(f"pod {name} ended", 60, ended)
    said = kube.kubectl("logs", name, check=False)
    kube.kubectl("delete", "pod", name, "--wait=false")
    if phase != "Succeeded":
        raise RuntimeError(f"could not kill the worker of {pod['metadata']['name']}: {said}")
    return float(said)
