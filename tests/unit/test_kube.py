"""The door to the API server: what is sent, and when nothing may be sent."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater_operator import errors
from slackwater_operator.kube import Json, Kube


class Recording(Kube):
    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Json:
        self.sent.append((method, path, body))
        return {}


class NoServer:
    async def param_serialize(self, *_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError


def deposed() -> None:
    raise errors.NotLeader("deposed")


async def test_a_delete_names_the_uid_it_means() -> None:
    kube = Recording()
    await kube.delete("/pods/p", uid="u1", grace_seconds=30)
    ((method, path, body),) = kube.sent
    assert (method, path) == ("DELETE", "/pods/p")
    assert body["preconditions"] == {"uid": "u1"}
    assert body["gracePeriodSeconds"] == 30


async def test_a_deposed_leader_writes_nothing_and_may_read() -> None:
    kube = Kube(NoServer(), timeout_seconds=1, guard=deposed)  # type: ignore[arg-type]
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(errors.NotLeader):
            await kube.request(method, "/pods/p", body={})
    with pytest.raises(errors.Unavailable):
        await kube.get("/pods/p")
