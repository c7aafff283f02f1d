"""What the API server has told, kept by us. Rule: newer wins by resourceVersion, and what was seen deleted stays so.

Own writes are put in with the answer they got, so that the next round never plans on a picture older than its own
acts. A full list also removes what vanished while a watch was blind. Pods and revisions are kept under the uid of
the WorkerPool that controls them; labels alone make nothing ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from slackwater_operator import reading
from slackwater_operator.seen import Node, Pod, Revision

Raw = Mapping[str, Any]
T = TypeVar("T")
_TOMBSTONES = 20_000


@dataclass(frozen=True)
class Entry(Generic[T]):
    uid: str
    group: str
    version: int
    value: T


class Kept(Generic[T]):
    """Objects of one kind, grouped (by owner, by namespace)."""

    def __init__(self, parse: Callable[[Raw], T], group: Callable[[Raw], str | None]) -> None:
        self._parse = parse
        self._group = group
        self._entries: dict[str, Entry[T]] = {}
        self._groups: dict[str, dict[str, Entry[T]]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def put(self, body: Raw) -> str | None:
        """Take a newer body in. Returns its group if anything that matters has changed."""
        uid, group = body["metadata"]["uid"], self._group(body)
        before = self._entries.get(uid)
        version = reading.version(body)
        if group is None or uid in self._deleted or (before is not None and before.version >= version):
            return None
        entry = Entry(uid, group, version, self._parse(body))
        if before is not None and before.group != group:
            self._groups[before.group].pop(uid, None)
        self._entries[uid] = entry
        self._groups.setdefault(group, {})[uid] = entry
        same = before is not None and before.group == group and _plain(before.value) == _plain(entry.value)
        return None if same else group

    def remove(self, uid: str) -> str | None:
        self._deleted[uid] = None
        while len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        members = self._groups[entry.group]
        members.pop(uid, None)
        if not members:
            del self._groups[entry.group]
        return entry.group

    def prune(self, listed: set[str], version: int) -> list[str]:
        """Remove what a list of this version did not have. Returns the groups concerned."""
        stale = [e.uid for e in self._entries.values() if e.uid not in listed and e.version <= version]
        return [group for uid in stale if (group := self.remove(uid)) is not None]

    def of(self, group: str) -> list[T]:
        return [entry.value for entry in self._groups.get(group, {}).values()]

    def groups(self) -> list[str]:
        return list(self._groups)

    def find(self, uid: str) -> T | None:
        entry = self._entries.get(uid)
        return entry.value if entry else None

    def __len__(self) -> int:
        return len(self._entries)


def _plain(value: Any) -> Any:
    """Without what changes at every write."""
    return replace(value, version=0) if isinstance(value, Pod) else value


@dataclass(frozen=True)
class AnyBudget:
    name: str
    namespace: str
    owner: str | None
    selects: tuple[tuple[str, str], ...]


def _any_budget(body: Raw) -> AnyBudget:
    parsed = reading.budget(body, "")
    return AnyBudget(parsed.name, body["metadata"]["namespace"], reading.owner_uid(body), parsed.selects)


def _raw(body: Raw) -> Raw:
    """A pool as it is, less what only changes with the status: rounds are not to wake themselves."""
    meta = {k: v for k, v in body["metadata"].items() if k not in ("managedFields", "resourceVersion")}
    return {"metadata": meta, "spec": body.get("spec") or {}}


@dataclass
class Cache:
    pools: Kept[Raw] = field(default_factory=lambda: Kept(_raw, lambda b: str(b["metadata"]["uid"])))
    pods: Kept[Pod] = field(default_factory=lambda: Kept(reading.pod, reading.owner_uid))
    nodes: Kept[Node] = field(default_factory=lambda: Kept(reading.node, lambda b: str(b["metadata"]["name"])))
    revisions: Kept[Revision] = field(default_factory=lambda: Kept(reading.revision, reading.owner_uid))
    budgets: Kept[AnyBudget] = field(
        default_factory=lambda: Kept(_any_budget, lambda b: str(b["metadata"]["namespace"]))
    )
    nodes_readable: bool = True

    def pool(self, uid: str) -> Raw | None:
        return self.pools.find(uid)

    def node(self, name: str) -> Node | None:
        found = self.nodes.of(name)
        return found[-1] if found else None

    def pools_on_node(self, name: str) -> set[str]:
        return {uid for uid in self.pods.groups() if any(pod.node == name for pod in self.pods.of(uid))}

    def pools_in(self, namespace: str) -> set[str]:
        return {
            uid
            for uid in self.pools.groups()
            if (body := self.pools.find(uid)) and body["metadata"]["namespace"] == namespace
        }
