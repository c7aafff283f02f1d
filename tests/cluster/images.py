"""The images that nodes get.

Rule: an archive's name holds the hash of everything that went into it; what exists is never built again.
"""

import hashlib
import os
from pathlib import Path

from tests.cluster import oci
from tests.cluster.config import PAUSE_IMAGE
from tests.cluster.layout import cache_root
from tests.cluster.store import Image

COREDNS_IMAGE = "localhost/coredns:1"


def folder() -> Path:
    path = cache_root() / "images"
    path.mkdir(parents=True, exist_ok=True)
    return path


def system(bin_dir: Path) -> list[Image]:
    """What the cluster itself runs: the sandbox process and the DNS server, from our own build."""
    return [_scratch(PAUSE_IMAGE, bin_dir / "pause"), _scratch(COREDNS_IMAGE, bin_dir / "coredns")]


def _scratch(tag: str, binary: Path) -> Image:
    digest = hashlib.sha256(f"{tag} {binary.parent.name}".encode()).hexdigest()[:16]
    archive = folder() / f"{binary.name}-{digest}.tar"
    if not archive.exists():
        half = archive.with_suffix(f".{os.getpid()}")
        oci.write_scratch_image(half, tag, binary)
        half.rename(archive)
    return Image(tag, archive)
