"""Keeping the cache from growing with every changed line.

Rule: of each image the newest builds stay; a part goes when no build that stays names it. Clusters that run are not
touched: their nodes hold what they use (`store`).
"""

import contextlib
import itertools
import json
from pathlib import Path

from tests.cluster import buildah, pool

KEEP = 6
"""Builds of each image: enough for some branches side by side."""
SLACK = 12
"""Nothing happens before an image has this many, so that few builds pay for it."""


def old_builds(records: Path) -> None:
    """Forget old builds, their names in the builder's storage, and the parts of the pool that only they used."""
    by_age = sorted(records.glob("localhost_*.json"), key=lambda p: (_tag(p), -p.stat().st_mtime))
    old: list[Path] = []
    for _, group in itertools.groupby(by_age, key=_tag):
        builds = list(group)
        old += builds[KEEP:] if len(builds) > SLACK else []
    if not old:
        return
    gone = {_key(p) for p in old}
    for path in old:
        path.unlink()
    buildah.remove(*(n for n in buildah.names() if n.rpartition(":")[2] in gone))
    _sweep(records)


def _sweep(records: Path) -> None:
    """The parts that no record names. A build that is just being stored has its record only later: the lock of
    `images.build` keeps such builds out."""
    digests = [d for p in records.glob("*.json") for d in json.loads(p.read_text()).values()]
    named = {part for d in digests if pool.blob(d).exists() for part in pool.parts(pool.Image("", d))}
    for path in (pool.root() / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in named:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _tag(record: Path) -> str:
    return record.stem.rpartition("-")[0]


def _key(record: Path) -> str:
    return record.stem.rpartition("-")[2]
