"""Unpacked images, kept so that a node has them the moment it starts.

Rule: a generation is a containerd root that never changes once it has its name. A new one starts as a copy by hard
links of the one before, takes in what is new, and is renamed into place. Nodes point into a generation by symbolic
links and hold a shared lock on it; one that nobody holds and that is not among the newest is cleared away.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.cluster import config, pool
from tests.cluster.layout import cache_root
from tests.cluster.locks import held
from tests.cluster.pool import Image
from tests.cluster.shell import run, say

KEEP = 3
CONTENT = "io.containerd.content.v1.content/blobs/sha256"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
METADATA = "io.containerd.metadata.v1.bolt/meta.db"


def ensure(images: Iterable[Image], bin_dir: Path) -> Path:
    """The generation with exactly these images."""
    wanted = {i.tag: i.digest for i in images}
    home = cache_root() / "store"
    ready = home / hashlib.sha256(json.dumps([bin_dir.name, wanted], sort_keys=True).encode()).hexdigest()[:16]
    if not ready.exists():
        with held(home / ".lock", "images are being unpacked"):
            if not ready.exists():
                _make(home, ready, wanted, bin_dir)
    os.utime(ready)
    return ready


def _generations(home: Path) -> list[Path]:
    """Newest first."""
    return sorted((m.parent for m in home.glob("[0-9a-f]*[0-9a-f]/manifest.json")), key=lambda g: -g.stat().st_mtime)


def _nearest(home: Path, wanted: dict[str, str]) -> Path | None:
    """The generation that has most of the wanted content already."""

    def has(generation: Path) -> int:
        digests = {d for tag, digest in wanted.items() for d in pool.parts(Image(tag, digest))}
        there = (d for d in digests if (generation / CONTENT / d.removeprefix("sha256:")).exists())
        return sum(pool.blob(d).stat().st_size for d in there)

    return max(_generations(home), key=has, default=None)


def _make(home: Path, ready: Path, wanted: dict[str, str], bin_dir: Path) -> None:
    half = home / f"part-{ready.name}"
    for left in home.glob("part-*"):
        shutil.rmtree(left)
    had: dict[str, str] = {}
    if before := _nearest(home, wanted):
        had = json.loads((before / "manifest.json").read_text())
        run("cp", "-al", before, half)
        for database in (METADATA, f"{SNAPSHOTS}/metadata.db"):
            (half / database).unlink()
            shutil.copy2(before / database, half / database)
    half.mkdir(exist_ok=True)
    new = [Image(tag, digest) for tag, digest in wanted.items() if had.get(tag) != digest]
    gone = [tag for tag in had if tag not in wanted]
    say(f"unpacking {len(new)} image{'s' * (len(new) != 1)} for the nodes")
    _change(half, bin_dir, new, gone)
    (half / "manifest.json").unlink(missing_ok=True)
    (half / "manifest.json").write_text(json.dumps(wanted, indent=1, sort_keys=True))
    half.rename(ready)
    _clear_away(home, ready)


def _change(root: Path, bin_dir: Path, new: list[Image], gone: list[str]) -> None:
    """Run a containerd on the root, in namespaces that take every mount and process with them when it ends."""
    toml = root / "containerd.toml"
    toml.unlink(missing_ok=True)
    toml.write_text(config.unpacker(root))
    ctr = f"{bin_dir}/ctr -a /run/containerd.sock -n k8s.io images"
    lines = [
        "set -eu",
        "mount -t tmpfs tmpfs /run",
        f"{bin_dir}/containerd --config {toml} > /run/log 2>&1 & server=$!",
        "trap 'tail -20 /run/log >&2' EXIT",
        f"i=0; until {ctr} ls -q > /dev/null 2>&1; do i=$((i + 1)); [ $i -lt 200 ]; sleep 0.05; done",
        f"{ctr} import -" if new else ":",
        *(f"{ctr} rm --sync {tag}" for tag in gone),
        "trap - EXIT; kill -TERM $server; wait $server",
    ]
    isolate = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    pool.send(new, root / CONTENT, [*isolate, "sh", "-c", "\n".join(lines)])


def _clear_away(home: Path, newest: Path) -> None:
    for old in _generations(home)[KEEP:]:
        with contextlib.suppress(BlockingIOError), (old / "manifest.json").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
    run("touch", newest)


def clone(generation: Path, root: Path) -> None:
    """A containerd root for one node: own databases, layers and blobs by symbolic link into the generation."""
    if root.exists():
        return
    (root / SNAPSHOTS / "snapshots").mkdir(parents=True)
    (root / CONTENT).mkdir(parents=True)
    (root / METADATA).parent.mkdir(parents=True)
    for database in (METADATA, f"{SNAPSHOTS}/metadata.db"):
        shutil.copy2(generation / database, root / database)
    for folder in (CONTENT, f"{SNAPSHOTS}/snapshots"):
        for entry in (generation / folder).iterdir():
            (root / folder / entry.name).symlink_to(entry)


def load(images: Iterable[Image], root: Path, socket: Path, bin_dir: Path) -> None:
    """Bring images into the containerd of a running node."""
    command = [f"{bin_dir}/ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", "-"]
    pool.send(images, root / CONTENT, command)
