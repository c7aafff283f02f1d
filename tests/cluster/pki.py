"""Certificates and kubeconfigs of one instance.

Rule: an identity per component, as in a real cluster, so that RBAC and the node authorizer judge as they do there.
"""

import json
import secrets
from pathlib import Path

from tests.cluster import layout
from tests.cluster.layout import Layout
from tests.cluster.shell import script

CONTEXT_PREFIX = "slackwater"


def make_authority(lay: Layout) -> None:
    """The certificate authority and the key that signs service account tokens."""
    lay.pki.mkdir(parents=True, exist_ok=True)
    script(f"""
        cd {lay.pki}
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
            -subj /CN={lay.name} -days 3650
        openssl ecparam -name prime256v1 -genkey -noout -out sa.key
        openssl ec -in sa.key -pubout -out sa.pub
    """)


def make_server_certificate(lay: Layout) -> None:
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", layout.API_SERVICE_IP, layout.BRIDGE_IP]
    sans = [f"DNS:{n}" for n in names] + [f"IP:{a}" for a in addresses]
    _certificate(lay, "apiserver", "/CN=kube-apiserver", ",".join(sans))


def make_user(lay: Layout, user: str, subject: str, sans: str | None = None) -> Path:
    """A certificate for one component and the kubeconfig that uses it."""
    _certificate(lay, user, subject, sans or f"DNS:{user}")
    context = f"{CONTEXT_PREFIX}-{lay.instance}"
    path = lay.kubeconfig(user)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": context,
                "cluster": {
                    "server": f"https://{layout.BRIDGE_IP}:{layout.API_PORT}",
                    "certificate-authority": str(lay.pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate": str(lay.pki / f"{user}.crt"),
                    "client-key": str(lay.pki / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path


def _certificate(lay: Layout, name: str, subject: str, sans: str) -> None:
    (lay.pki / f"{name}.ext").write_text(f"subjectAltName={sans}\nextendedKeyUsage=serverAuth,clientAuth\n")
    script(f"""
        cd {lay.pki}
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr \
            -subj '{subject}'
        openssl x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -set_serial 0x{secrets.token_hex(8)} \
            -out {name}.crt -days 3650 -extfile {name}.ext
    """)
