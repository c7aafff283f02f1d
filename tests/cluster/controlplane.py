"""etcd, API server, controller manager, scheduler, and a kube-proxy for the processes that join `cp`.

Rule: the namespace `cp` outlives every node; no fault that the harness offers touches what runs here.
"""

from pathlib import Path

from tests.cluster import api, layout, netns, pki, units
from tests.cluster.layout import Layout
from tests.cluster.shell import wait_until

AUDIT_POLICY = Path(__file__).with_name("manifests") / "audit-policy.yaml"
USERS = {
    "admin": "/O=system:masters/CN=admin",
    "controllers": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
}


def start_api(lay: Layout, bin_dir: Path) -> None:
    """The network, the certificates, etcd and the API server; returns before it answers."""
    netns.make_switch(lay)
    pki.make_authority(lay)
    _start(lay, bin_dir, "etcd", *_etcd(lay))
    pki.make_server_certificate(lay)
    pki.make_user(lay, "admin", USERS["admin"])
    _start(lay, bin_dir, "kube-apiserver", *_apiserver(lay))


def finish(lay: Layout, bin_dir: Path) -> None:
    """Wait for the API server and start those that need it."""
    for user in ("controllers", "scheduler", "proxy"):
        pki.make_user(lay, user, USERS[user])
    wait_until(lambda: _answers(lay), f"the API server of {lay.instance} answers", within=60)
    _start(lay, bin_dir, "kube-controller-manager", *_controllers(lay))
    scheduler = ["--leader-elect=false", f"--kubeconfig={lay.kubeconfig('scheduler')}"]
    _start(lay, bin_dir, "kube-scheduler", "kube-scheduler", *scheduler)


def start_proxy(lay: Layout, bin_dir: Path) -> None:
    """Makes Services reachable from `cp`. It borrows the name of the first node: it needs one to ask the API for."""
    _start(lay, bin_dir, "kube-proxy", *proxy_argv(lay, layout.node_name(1)))


def proxy_argv(lay: Layout, node: str) -> list[str]:
    return [
        "kube-proxy",
        f"--kubeconfig={lay.kubeconfig('proxy')}",
        "--proxy-mode=iptables",
        f"--hostname-override={node}",
        f"--cluster-cidr={layout.POD_NET}",
        "--conntrack-max-per-core=0",
        "--iptables-min-sync-period=100ms",
    ]


def _start(lay: Layout, bin_dir: Path, unit: str, *argv: str) -> None:
    units.start(lay, f"cp.{unit}", argv, bin_dir=bin_dir, enter=["nsenter", f"--net={lay.netns_path('cp')}"])


def _answers(lay: Layout) -> bool:
    units.must_run(lay, "cp.etcd")
    units.must_run(lay, "cp.kube-apiserver")
    return api.get(lay, "/readyz") == b"ok"


def _etcd(lay: Layout) -> list[str]:
    return [
        "etcd",
        f"--data-dir={lay.root / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    ]


def _apiserver(lay: Layout) -> list[str]:
    keys = lay.pki
    return [
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={layout.BRIDGE_IP}",
        f"--secure-port={layout.API_PORT}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={layout.SERVICE_NET}",
        "--authorization-mode=Node,RBAC",
        f"--kubelet-client-certificate={keys}/admin.crt",
        f"--kubelet-client-key={keys}/admin.key",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-admission-plugins=NodeRestriction",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={lay.audit_log}",
        "--audit-log-maxsize=200",
    ]


def _controllers(lay: Layout) -> list[str]:
    return [
        "kube-controller-manager",
        f"--kubeconfig={lay.kubeconfig('controllers')}",
        f"--root-ca-file={lay.pki}/ca.crt",
        f"--service-account-private-key-file={lay.pki}/sa.key",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--node-monitor-grace-period=15s",
        "--node-monitor-period=1s",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        f"--flex-volume-plugin-dir={lay.root}/plugins",
    ]
