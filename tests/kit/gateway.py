"""Submitting and reading tasks as a user does: over HTTP with a token."""

from __future__ import annotations

from typing import Any

import httpx

from tests.kit.forward import Reach
from tests.kit.waiting import until

ENDED = {"done", "failed", "cancelled"}


class Gateway:
    def __init__(self, reach: Reach, token: str = "demo-user-token-0001", service: str = "slackwater-gateway") -> None:
        self._reach, self._service = reach, service
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=10, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        host, port = self._reach.address(self._service)
        return self._http.request(method, f"http://{host}:{port}{path}", **kwargs)

    def submit(self, kind: str, payload: dict[str, Any], *, key: str, **fields: Any) -> str:
        """Id of the accepted task; the key makes a repeat after a lost answer harmless."""

        def ask() -> str | None:
            answer = self.call(
                "POST",
                "/api/tasks",
                json={"type": kind, "payload": payload, **fields},
                headers={"Idempotency-Key": key},
            )
            if answer.status_code in (429, 503):
                return None
            answer.raise_for_status()
            return str(answer.json()["id"])

        return until(f"task {key} accepted", 60, ask)

    def task(self, task_id: str) -> dict[str, Any]:
        answer = self.call("GET", f"/api/tasks/{task_id}")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def states(self, ids: list[str]) -> dict[str, str]:
        """State of each of these tasks, read page by page."""
        wanted, found, cursor = set(ids), {}, ""
        while True:
            answer = self.call("GET", "/api/tasks", params={"limit": 100, **({"cursor": cursor} if cursor else {})})
            answer.raise_for_status()
            page = answer.json()
            found.update({t["id"]: t["state"] for t in page["tasks"] if t["id"] in wanted})
            cursor = page["cursor"] or ""
            if not cursor or len(found) == len(wanted):
                return found

    def wait_ended(self, ids: list[str], seconds: float) -> dict[str, str]:
        def ask() -> dict[str, str] | None:
            states = self.states(ids)
            return states if len(states) == len(ids) and set(states.values()) <= ENDED else None

        return until(f"all of {len(ids)} tasks ended", seconds, ask, every=0.5)
