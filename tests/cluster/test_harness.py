"""The harness does what the other tests rely on. Every wait is for a signal and has a deadline."""

import json
import socket
import time

import pytest

from tests.cluster import api
from tests.cluster.cluster import Cluster
from tests.cluster.faults import Faults
from tests.cluster.shell import ClusterError, wait_until

pytestmark = pytest.mark.cluster
IMAGE = "localhost/slackwater-services:v1"
LISTEN = """
import socket
server = socket.create_server(("", 80))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
COUNT = "import itertools, time\nfor n in itertools.count(): print(n, flush=True); time.sleep(0.1)"
DIAL = """
import socket, time
while True:
    try:
        socket.create_connection(("there", 80), 0.5).close(); print("open", flush=True)
    except OSError:
        print("shut", flush=True)
    time.sleep(0.2)
"""


def start(cluster: Cluster, name: str, program: str, node: str | None = None) -> None:
    """A pod that runs a Python program, and a Service of the same name."""
    container = {"name": "main", "image": IMAGE, "command": ["python3", "-c", program]}
    # Not the image's user: a port below 1024 is the shortest way to say "http".
    context = {"securityContext": {"runAsUser": 0}}
    spec = {"containers": [container | context], "terminationGracePeriodSeconds": 0}
    meta = {"name": name, "labels": {"app": name}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | ({"nodeName": node} if node else {})}
    ports = {"selector": {"app": name}, "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": ports}
    for body in (service, pod):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    cluster.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=30s")


def remove(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.kubectl("delete", "pod,service", name, "--ignore-not-found", "--now")


def lines(cluster: Cluster, pod: str) -> list[str]:
    return cluster.kubectl("logs", pod).splitlines()


def opens(address: str) -> bool:
    try:
        socket.create_connection((address, 80), 1).close()
    except OSError:
        return False
    return True


def test_the_nodes_are_ready_and_have_the_images(cluster: Cluster) -> None:
    assert api.ready_nodes(cluster.layout) == {"node1", "node2"}
    for node in cluster.get("nodes")["items"]:
        assert IMAGE in [name for image in node["status"]["images"] for name in image["names"]]


def test_a_pod_runs_and_its_service_answers_to_pods_and_to_this_process(cluster: Cluster) -> None:
    start(cluster, "there", LISTEN, "node1")
    start(cluster, "here", DIAL, "node2")
    try:
        assert lines(cluster, "there") == ["listening"]
        wait_until(lambda: "open" in lines(cluster, "here"), "the pod reaches the Service by name", within=10)
        wait_until(lambda: opens(cluster.service_ip("there")), "the Service answers here", within=10)
        found = cluster.kubectl(
            "exec", "here", "--", "python3", "-c", "import socket; print(socket.gethostbyname('there'))"
        )
        assert found.strip() == cluster.service_ip("there")
    finally:
        remove(cluster, "there", "here")


def test_traffic_of_one_pod_to_one_service_can_be_blocked(cluster: Cluster, faults: Faults) -> None:
    start(cluster, "there", LISTEN)
    start(cluster, "here", DIAL)
    try:
        wait_until(lambda: lines(cluster, "here")[-1:] == ["open"], "open", within=10)
        with faults.blocked("here", "there"):
            wait_until(lambda: lines(cluster, "here")[-1:] == ["shut"], "shut", within=10)
            assert opens(cluster.service_ip("there"))
        wait_until(lambda: lines(cluster, "here")[-1:] == ["open"], "open again", within=10)
    finally:
        remove(cluster, "there", "here")


def test_a_paused_container_does_nothing_until_it_is_resumed(cluster: Cluster, faults: Faults) -> None:
    start(cluster, "counter", COUNT)
    try:
        wait_until(lambda: lines(cluster, "counter"), "it counts", within=10)
        faults.pause("counter")
        before = wait_until(lambda: lines(cluster, "counter"), "its lines", within=10)
        time.sleep(0.5)  # five of its ticks, in which nothing may happen
        assert lines(cluster, "counter") == before
        faults.resume("counter")
        wait_until(lambda: len(lines(cluster, "counter")) > len(before), "it goes on counting", within=10)
    finally:
        remove(cluster, "counter")


def test_a_killed_container_is_started_again(cluster: Cluster, faults: Faults) -> None:
    start(cluster, "victim", COUNT)

    def status() -> dict[str, object]:
        return dict(cluster.get("pod", "victim")["status"]["containerStatuses"][0])

    try:
        faults.kill("victim")
        wait_until(lambda: status()["restartCount"] == 1, "the kubelet starts it again", within=20)
        last = cluster.get("pod", "victim")["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert last["exitCode"] == 128 + 9
    finally:
        remove(cluster, "victim")


def test_a_fault_on_nothing_says_so(faults: Faults) -> None:
    with pytest.raises(ClusterError, match="there is no /api/v1/namespaces/default/pods/nobody"):
        faults.kill("nobody")


@pytest.mark.parametrize("how", ["power", "network", "kubelet"])
def test_a_silent_node_turns_not_ready_and_comes_back(cluster: Cluster, faults: Faults, how: str) -> None:
    breaks, mends = {
        "power": (faults.power_off, faults.power_on),
        "network": (faults.cut_network, faults.heal_network),
        "kubelet": (faults.stop_kubelet, faults.continue_kubelet),
    }[how]
    breaks("node2")
    try:
        wait_until(lambda: "node2" not in api.ready_nodes(cluster.layout), "node2 is not Ready", within=40, every=0.5)
        assert "node1" in api.ready_nodes(cluster.layout)
    finally:
        mends("node2")
    wait_until(lambda: "node2" in api.ready_nodes(cluster.layout), "node2 is Ready", within=60, every=0.5)
