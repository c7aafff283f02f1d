"""The machine's pool of image parts: one OCI layout, content-addressed, shared by all builds and all clusters.

Rule: an image is a tag and the digest of its manifest. What a containerd has already is never sent to it again, so
a changed source costs its own small layer and not the base below it.
"""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.cluster.layout import cache_root
from tests.cluster.shell import ClusterError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Image:
    """A tag and what it means: the digest of a manifest in the pool."""

    tag: str
    digest: str


def root() -> Path:
    path = cache_root() / "oci"
    (path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    return path


def blob(digest: str) -> Path:
    return root() / "blobs" / digest.replace(":", "/")


def add(data: bytes) -> str:
    """Put a blob into the pool; whole or not at all."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    path = blob(digest)
    if not path.exists():
        half = path.with_suffix(".part")
        half.write_bytes(data)
        half.rename(path)
    return digest


def parts(image: Image) -> list[str]:
    """The digests that the image is made of, its manifest last."""
    manifest = json.loads(blob(image.digest).read_text())
    return [d["digest"] for d in (*manifest["layers"], manifest["config"])] + [image.digest]


def complete(image: Image) -> bool:
    return blob(image.digest).exists() and all(blob(d).exists() for d in parts(image))


def scratch_image(tag: str, binary: Path) -> Image:
    """An image with nothing but one static binary at /NAME, which is also its entry point."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(binary.name)
        info.size, info.mode = binary.stat().st_size, 0o755
        with binary.open("rb") as data:
            tar.addfile(info, data)
    layer = add(out.getvalue())
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{binary.name}"], "User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    }
    return Image(tag, add_image(_json(config), [layer]))


def add_image(config: bytes, layers: list[str]) -> str:
    """Put together an image from layers in the pool; returns the digest of its manifest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(CONFIG, add(config)),
        "layers": [_descriptor(LAYER, layer) for layer in layers],
    }
    return add(_json(manifest))


def take_layers(archive: Path, layers: list[str]) -> None:
    """Take from a docker-archive the layers that the pool lacks; there they are called by their digest."""
    with tarfile.open(archive) as tar:
        for digest in layers:
            if not blob(digest).exists():
                half = blob(digest).with_suffix(".part")
                data = tar.extractfile(f"{digest.removeprefix('sha256:')}.tar")
                assert data is not None
                with data, half.open("wb") as out:
                    shutil.copyfileobj(data, out, 1 << 20)
                half.rename(blob(digest))


def send(images: Iterable[Image], has: Path, command: list[str]) -> None:
    """Feed the images to `command` (an importer that reads a tar) without the blobs that lie in the folder `has`."""
    wanted = list(images)
    pipe, joined = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=joined) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the importer gave up; what it says comes below
            _write(process.stdin, wanted, list(_missing(wanted, has)))
        said = process.stdout.read().decode()
    if process.returncode:
        raise ClusterError(f"{' '.join(command)}: exit status {process.returncode}\n{said}")


def _missing(images: list[Image], has: Path) -> Iterator[str]:
    digests = dict.fromkeys(d for image in images for d in parts(image))
    return (d for d in digests if not (has / d.removeprefix("sha256:")).exists())


def _write(out: IO[bytes], images: list[Image], digests: list[str]) -> None:
    entries = [
        _descriptor(MANIFEST, i.digest)
        | {"annotations": {"io.containerd.image.name": i.tag, "org.opencontainers.image.ref.name": i.tag}}
        for i in images
    ]
    with out, tarfile.open(fileobj=out, mode="w|") as tar:
        for name, data in {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": entries}),
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for digest in digests:
            tar.add(blob(digest), f"blobs/{digest.replace(':', '/')}")


def _descriptor(kind: str, digest: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": blob(digest).stat().st_size}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
