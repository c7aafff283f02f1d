"""Configuration files of a node's servers.

Rule: as a real node has it, but quick to notice and to retry, and with every path under the node's own folder.
"""

import json
from pathlib import Path

from tests.cluster import layout
from tests.cluster.layout import Layout

PAUSE_IMAGE = "localhost/pause:1"


def containerd(home: Path) -> str:
    return f"""
version = 3
root = "{home}/containerd"
state = "/run/containerd/state"
[grpc]
  address = "{home}/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "{home}/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  # Inside a sandbox the harness may lack the right to lower a process's out-of-memory score.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{home}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def unpacker(home: Path) -> str:
    """A containerd that only unpacks images into a root that nodes will copy."""
    return f"""
version = 3
root = "{home}"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "/run/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "/run/opt"
"""


def cni(node: str, home: Path) -> str:
    ipam = {
        "type": "host-local",
        "dataDir": str(home / "ipam"),
        "ranges": [[{"subnet": layout.pod_subnet(node)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    # Routed, not bridged: a pod reaches a Service that ends on its own node without bridge-netfilter.
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }
    )


def kubelet(lay: Layout, node: str) -> str:
    home = lay.node_dir(node)
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "x509": {"clientCAFile": f"{lay.pki}/ca.crt"},
                "webhook": {"enabled": True},
                "anonymous": {"enabled": False},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{lay.pki}/{node}.crt",
            "tlsPrivateKeyFile": f"{lay.pki}/{node}.key",
            "containerRuntimeEndpoint": f"unix://{home}/containerd.sock",
            "podLogsDir": str(home / "pods"),
            "volumePluginDir": str(home / "plugins"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{lay.name}/{node}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDNS": [layout.DNS_IP],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # All nodes share the machine's disk and memory: only a truly full machine may evict.
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "maxPods": 200,
            # Quick: a dead node is noticed 15 s after its last word, a crashed container is back within 5 s.
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,
            "syncFrequency": "10s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
        },
        indent=1,
    )
