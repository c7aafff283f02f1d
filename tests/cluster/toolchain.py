"""The servers, built from Go modules at versions fixed by `tools/*/go.sum`.

Rule: one build per content of these files, kept in the cache and moved into place whole; nobody sees half a build.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import cache_root
from tests.cluster.locks import held
from tests.cluster.shell import ClusterError, run, say, stream

TOOLS = Path(__file__).with_name("tools")
KUBERNETES = "v1.36.3"
_STAMP = " ".join(
    f"-X k8s.io/component-base/version.{key}={value}"
    for key, value in (("gitVersion", KUBERNETES), ("gitMajor", "1"), ("gitMinor", "36"))
)
PAUSE_C = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void quit(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) { signal(SIGTERM, quit); signal(SIGINT, quit); signal(SIGCHLD, reap); for (;;) pause(); }
"""


@dataclass(frozen=True)
class Module:
    """One go.mod under tools/ and what is built in it."""

    folder: str
    packages: tuple[str, ...]
    tags: str = ""
    stamp: str = ""


MODULES = (
    Module("etcd", ("go.etcd.io/etcd/server/v3",)),
    Module(
        "containerd",
        tuple(f"github.com/containerd/containerd/v2/cmd/{c}" for c in ("containerd", "containerd-shim-runc-v2", "ctr")),
        tags="no_btrfs no_devmapper no_zfs no_aufs",
    ),
    Module("coredns", ("github.com/coredns/coredns",)),
    Module(
        "kubernetes",
        tuple(
            f"k8s.io/kubernetes/cmd/{c}"
            for c in ("kubectl", "kube-proxy", "kubelet", "kube-scheduler", "kube-controller-manager", "kube-apiserver")
        ),
        stamp=_STAMP,
    ),
)


def key() -> str:
    digest = hashlib.sha256(repr(MODULES).encode() + PAUSE_C.encode())
    for path in sorted(TOOLS.glob("*/go.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def binaries() -> Path:
    """The folder with the servers; builds them if these versions were never built on this machine."""
    home = cache_root() / "bin"
    ready = home / key()
    if ready.is_dir():
        return ready
    with held(home / ".lock", "the servers are being built"):
        if not ready.is_dir():
            _build(home, ready)
    return ready


def _build(home: Path, ready: Path) -> None:
    if shutil.which("go") is None:
        raise ClusterError("go is not on the PATH; it is needed once, to build the Kubernetes servers")
    half = home / f"{ready.name}.part"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    say(f"building the Kubernetes servers into {ready} (once; about 6 minutes on 2 cores)")
    env = {**os.environ, "CGO_ENABLED": "0"}
    for module in MODULES:
        folder = TOOLS / module.folder
        say(f"  {module.folder}: downloading modules")
        run("go", "mod", "download", cwd=folder, env=env)
        for package in module.packages:
            name = "etcd" if module.folder == "etcd" else package.rsplit("/", 1)[1]
            say(f"  {name}")
            flags = ["-trimpath", "-tags", module.tags, "-ldflags", f"-s -w {module.stamp}".strip()]
            stream(["go", "build", *flags, "-o", half / name, package], cwd=folder, env=env)
    subprocess.run(
        ["gcc", "-Os", "-static", "-s", "-x", "c", "-", "-o", half / "pause"], input=PAUSE_C.encode(), check=True
    )
    half.rename(ready)
    say("servers built")
