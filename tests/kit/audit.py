"""What the API server wrote down: who asked for what, and when it arrived. Rule: read only, one namespace's writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass(frozen=True)
class Write:
    at: str
    """When the request arrived, as the API server wrote it; comparable as text."""
    user: str
    pod: str
    """The pod whose token was shown; empty for other tokens."""
    verb: str
    resource: str
    name: str
    code: int
    dry_run: bool

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300 and not self.dry_run


def writes(log: Path, *, account: str, namespace: str = "slackwater", start: int = 0) -> Iterator[Write]:
    """Of one service account. `start`: a size of the file, to skip what is older."""
    user = f"system:serviceaccount:{namespace}:{account}"
    with log.open("rb") as lines:
        lines.seek(start)
        for line in lines:
            if user.encode() not in line or not line.endswith(b"\n"):
                continue
            event = json.loads(line)
            if event["user"]["username"] != user or event["verb"] not in WRITES:
                continue
            ref = event.get("objectRef", {})
            resource = "/".join(filter(None, (ref.get("resource"), ref.get("subresource"))))
            pod = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])[0]
            yield Write(
                event["requestReceivedTimestamp"], user, pod, event["verb"], resource, ref.get("name", ""),
                int(event.get("responseStatus", {}).get("code", 0)), "dryRun=" in event["requestURI"],
            )  # fmt: skip
