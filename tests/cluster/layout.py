"""Where things are and what they are called.

Rule: names follow from the instance alone, so two instances never meet and a crashed one is found again.
State lives under a short path because a Unix socket's path has at most 107 characters, however long the checkout's is.
Addresses are the same in every instance: each has a network of its own that no other can see.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

BRIDGE_IP = "10.99.0.1"
POD_NET = "10.88.0.0/16"
SERVICE_NET = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = "10.96.0.10"
API_PORT = 6443
MAX_NODES = 50


def state_root() -> Path:
    return Path(os.environ.get("SLACKWATER_CLUSTERS", "/var/tmp/swk"))


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SLACKWATER_CACHE") or Path(base) / "slackwater")


@dataclass(frozen=True)
class Layout:
    """Every name and path of one instance."""

    instance: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", self.instance):
            raise ValueError(f"instance {self.instance!r}: one to 16 lower-case letters and digits, a letter first")

    @property
    def root(self) -> Path:
        return state_root() / self.instance

    @property
    def name(self) -> str:
        """Prefix of the namespaces, and name of the control group above all processes of the instance."""
        return f"swk-{self.instance}"

    def netns(self, host: str) -> str:
        return f"{self.name}-{host}"

    def netns_path(self, host: str) -> Path:
        return Path("/run/netns") / self.netns(host)

    def node_dir(self, node: str) -> Path:
        return self.root / node

    def log(self, unit: str) -> Path:
        return self.root / "logs" / f"{unit}.log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    def kubeconfig(self, user: str = "admin") -> Path:
        return self.root / f"{user}.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.root / "logs" / "audit.log"


def node_name(index: int) -> str:
    return f"node{index}"


def node_index(node: str) -> int:
    return int(node.removeprefix("node"))


def node_ip(node: str) -> str:
    return f"10.99.0.{10 + node_index(node)}"


def pod_subnet(node: str) -> str:
    return f"10.88.{node_index(node)}.0/24"
