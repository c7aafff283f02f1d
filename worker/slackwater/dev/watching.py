"""Whether task code changed. Rule: a look compares names, times and sizes of files, and imports nothing.

Watched is the package of each task module, or for a single file the Python files beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

Snapshot = dict[Path, tuple[int, int]]
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def roots(modules: Iterable[str], search: Sequence[str]) -> tuple[Path, ...]:
    """Where the modules' code lies. A module that can't be found has none: its worker says so itself."""
    found: dict[Path, None] = {}
    for module in modules:
        spec = PathFinder.find_spec(module.partition(".")[0], list(search))
        if spec is None:
            continue
        if spec.submodule_search_locations is not None:
            found |= dict.fromkeys(Path(place) for place in spec.submodule_search_locations)
        elif spec.origin is not None:
            found[Path(spec.origin)] = None
    return tuple(found)


def look(places: Iterable[Path]) -> Snapshot:
    """Every Python file there, with what changes when it is saved."""
    seen: Snapshot = {}
    for place in places:
        files = place.parent.glob("*.py") if place.suffix == ".py" else _walk(place)
        for file in files:
            try:
                stat = file.stat()
            except OSError:  # gone between listing and look: the next look shows it
                continue
            seen[file] = (stat.st_mtime_ns, stat.st_size)
    return seen


def changed(before: Snapshot, now: Snapshot) -> list[Path]:
    """Files that came, went or were saved."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


class Watch:
    """Tells a change once, and only when two looks in a row agree: an editor may save several files."""

    def __init__(self, places: tuple[Path, ...]) -> None:
        self._places = places
        self._told = self._seen = look(places)

    def changes(self) -> list[Path]:
        now = look(self._places)
        settled, self._seen = now == self._seen, now
        if not settled or now == self._told:
            return []
        news, self._told = changed(self._told, now), now
        return news


def _walk(folder: Path) -> Iterable[Path]:
    if not folder.is_dir():  # gone for the moment
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _SKIPPED and not entry.name.startswith("."):
                yield from _walk(entry)
        elif entry.suffix == ".py":
            yield entry
