"""buildah, the builder of ordinary Containerfiles that needs no daemon, with a storage of our own.

Rule: it runs in a mount namespace of its own, so no overlay stays mounted whatever happens to it; and nothing of the
machine goes into an image but the trusted certificates, lent for the length of a build.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

from tests.cluster import pool
from tests.cluster.layout import cache_root
from tests.cluster.shell import run, say, stream

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
IGNORE = Path(__file__).with_name("images") / "containerignore"


def _buildah(*argv: str | Path) -> list[str]:
    home = cache_root() / "buildah"
    storage = ["--root", str(home / "root"), "--runroot", str(home / "run"), "--storage-driver", "overlay"]
    return ["unshare", "--mount", "buildah", *storage, *map(str, argv)]


def base_key() -> str:
    return hashlib.sha256(repr((SUITE, PACKAGES, NOT_NEEDED)).encode()).hexdigest()[:16]


def base_image() -> str:
    """A small Debian with Python, made by debootstrap from Debian's own packages; stands in for `python:3.11-slim`."""
    name = f"localhost/slackwater-base:{base_key()}"
    if has(name):
        return name
    tree = cache_root() / "base.part"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    say("base image: debootstrap (once; about 40 s)")
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, tree)
    for folder in NOT_NEEDED:
        shutil.rmtree(tree / folder, ignore_errors=True)
        (tree / folder).mkdir()
    container = run(*_buildah("from", "scratch")).strip()
    run(*_buildah("add", "--quiet", container, tree, "/"))
    run(*_buildah("config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container))
    run(*_buildah("commit", "--quiet", "--rm", container, name))
    shutil.rmtree(tree)
    return name


def has(name: str) -> bool:
    return bool(run(*_buildah("images", "--quiet", name), check=False).strip())


def names() -> list[str]:
    """Every image of ours in the storage."""
    return run(*_buildah("images", "--format", "{{.Name}}:{{.Tag}}", "--filter", "dangling=false")).split()


def remove(*images: str) -> None:
    """By name; what no other image needs goes with it."""
    run(*_buildah("rmi", *images), check=False)


def build(name: str, containerfile: Path, context: Path, args: dict[str, str], *, cached: bool = True) -> None:
    """Build a Containerfile. Debian 12's buildah takes a cached `ENV X=${ARG}` whatever the argument's value is now:
    not `cached` for what is built with several values."""
    lent = [f"{p}:{p}:ro" for p in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf") if Path(p).exists()]
    stream(
        only="STEP",
        argv=_buildah(
            *(
                "build",
                f"--layers={str(cached).lower()}",
                "--isolation",
                "chroot",
                "--network",
                "host",
                "--ignorefile",
                IGNORE,
            ),
            *(f"--volume={v}" for v in lent),
            *(f"--build-arg={key}={value}" for key, value in args.items()),
            *("--tag", name, "--file", containerfile, context),
        ),
        env={**os.environ, "BUILDAH_FORMAT": "oci"},
    )


def push(name: str) -> str:
    """Copy the image into the pool and return its manifest's digest. Layers that are there already cost nothing."""
    config = run(*_buildah("inspect", "--type", "image", "--format", "{{.Config}}", name)).strip()
    layers = list(json.loads(config)["rootfs"]["diff_ids"])
    if not all(pool.blob(d).exists() for d in layers):
        say(f"  storing {name}")
        archive = cache_root() / "export.tar"
        archive.unlink(missing_ok=True)
        run(*_buildah("push", "--quiet", name, f"docker-archive:{archive}"))
        pool.take_layers(archive, layers)
        archive.unlink()
    return pool.add_image(config.encode(), layers)
