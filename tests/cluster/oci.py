"""Images of one static binary, written as an OCI archive without any image tool.

Rule: the same bytes for the same binary, so that an unchanged server is an unchanged image.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any


def write_scratch_image(archive: Path, tag: str, binary: Path, user: str = "65532:65532") -> None:
    """An image with nothing but `binary` at /NAME, which is also its entry point."""
    layer = _tar({binary.name: (binary.read_bytes(), 0o755)})
    blobs: dict[str, bytes] = {}
    layer_digest = _add(blobs, layer)
    settings = {"Entrypoint": [f"/{binary.name}"], "User": user}
    rootfs = {"type": "layers", "diff_ids": [layer_digest]}
    image = _json({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": rootfs})
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", _add(blobs, image), image),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer_digest, layer)],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", _add(blobs, manifest), manifest)
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": tag}
    files = {f"blobs/sha256/{digest.removeprefix('sha256:')}": (data, 0o644) for digest, data in blobs.items()}
    files["oci-layout"] = (_json({"imageLayoutVersion": "1.0.0"}), 0o644)
    files["index.json"] = (_json({"schemaVersion": 2, "manifests": [entry]}), 0o644)
    archive.write_bytes(_tar(files))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _add(blobs: dict[str, bytes], data: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blobs[digest] = data
    return digest


def _descriptor(kind: str, digest: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": len(data)}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
