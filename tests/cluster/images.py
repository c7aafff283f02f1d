"""The images that nodes get, each from a recipe.

Rule: a recipe's key is the hash of everything that goes in; what was built once under a key is never built again.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import buildah, pool, prune
from tests.cluster.config import PAUSE_IMAGE
from tests.cluster.layout import cache_root
from tests.cluster.locks import held
from tests.cluster.pool import Image
from tests.cluster.shell import say

REPO = Path(__file__).resolve().parents[2]
COREDNS_IMAGE = "localhost/coredns:1"


@dataclass(frozen=True)
class Recipe:
    """An ordinary Containerfile and what it reads. `parent` is passed as the build argument `parent_arg`."""

    tag: str
    containerfile: str
    inputs: tuple[str, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    parent: "Recipe | None" = None
    parent_arg: str = "BASE_IMAGE"
    context: Path = field(default=REPO)

    def key(self) -> str:
        digest = hashlib.sha256(repr((RECIPES, self.containerfile, self.args, self.parent_arg)).encode())
        digest.update((self.parent.key() if self.parent else buildah.base_key()).encode())
        for path in sorted(_files(self.context, (self.containerfile, *self.inputs))):
            digest.update(f"{path.relative_to(self.context)} {path.stat().st_mode & 0o111}".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:16]


def _files(context: Path, names: tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = context / name
        inside = path.rglob("*") if path.is_dir() else [path]
        found += [p for p in inside if p.is_file() and "__pycache__" not in p.parts]
    return found


SOURCE = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements.lock",
    "worker/slackwater",
    "operator/slackwater_operator",
)


RECIPES = 2
"""Counted up when the way of building changes, so that what was built the old way is built again."""
V1 = (("RELEASE", "v1"),)
SERVICES = Recipe(
    "localhost/slackwater-services:v1", "tests/cluster/images/services/Containerfile", ("tests/cluster/images",)
)


def recipes() -> list[Recipe]:
    """All of ours. `render` has two tags of the same program: what a rollout goes from and to."""
    worker = Recipe("localhost/slackwater-worker:v1", "worker/Containerfile", SOURCE, V1)
    render = "samples/render/Containerfile"
    found = [
        SERVICES,
        worker,
        Recipe("localhost/slackwater-operator:v1", "operator/Containerfile", SOURCE, V1),
        *(
            Recipe(f"localhost/slackwater-render:{v}", render, ("samples",), (("RELEASE", v),), worker, "WORKER_IMAGE")
            for v in ("v1", "v2")
        ),
    ]
    return [r for r in found if (REPO / r.containerfile).exists()]


def build(recipe: Recipe) -> Image:
    """The image of a recipe, built if its key is new."""
    key = recipe.key()  # taken once: sources may change under our hands
    record = cache_root() / "images" / f"{recipe.tag.replace('/', '_')}-{key}.json"
    if record.exists():
        image = Image(recipe.tag, json.loads(record.read_text())["digest"])
        if pool.complete(image):
            record.touch()
            return image
    with held(cache_root() / "images" / ".lock", "images are being built"):
        say(f"building {recipe.tag}")
        image = Image(recipe.tag, buildah.push(_local(recipe, key)))
        record.write_text(json.dumps({"digest": image.digest}))
        prune.old_builds(record.parent)
    return image


def _local(recipe: Recipe, key: str) -> str:
    """The image's name in the builder's own storage, where a child recipe finds it; built if it is not there."""
    name = f"{recipe.tag.rpartition(':')[0]}:{key}"
    if not buildah.has(name):
        base = _local(recipe.parent, recipe.parent.key()) if recipe.parent else buildah.base_image()
        args = dict(recipe.args) | {recipe.parent_arg: base}
        file = recipe.context / recipe.containerfile
        buildah.build(name, file, recipe.context, args, cached=recipe.parent is None)
    return name


def ours() -> list[Image]:
    return [build(r) for r in recipes()]


def system(bin_dir: Path) -> list[Image]:
    """What the cluster itself runs: the sandbox process and the DNS server, from our own build."""
    record = cache_root() / "images" / f"system-{bin_dir.name}.json"
    if record.exists():
        images = [Image(tag, digest) for tag, digest in json.loads(record.read_text()).items()]
        if all(pool.complete(i) for i in images):
            return images
    names = ((PAUSE_IMAGE, "pause"), (COREDNS_IMAGE, "coredns"))
    images = [pool.scratch_image(tag, bin_dir / name) for tag, name in names]
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({i.tag: i.digest for i in images}))
    return images
