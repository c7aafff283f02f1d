"""Who leads. Rule: time is monotonic and counted from the moment of sending; whoever is not sure writes nothing.

A holder renews every 2 s. It leads until `renew_deadline` after the sending of its last confirmed renewal; others take
the Lease only after `lease_seconds` without a change as they saw it themselves, so no clocks are compared. A lost
Lease is not won back by this process: it executes itself anew, into standby, with nothing remembered.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from slackwater_operator import errors, paths
from slackwater_operator.kube import Kube
from slackwater_operator.settings import Settings

log = structlog.get_logger()
Record = tuple[str, str, int]


class Elector:
    def __init__(self, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self.identity = f"{settings.identity}_{uuid.uuid4().hex[:8]}"
        self._sent: float | None = None
        """When the last confirmed renewal was sent; None: never held, or given up."""
        self._observed: tuple[Record, float] | None = None

    @property
    def leads(self) -> bool:
        return self._sent is not None and self._monotonic() - self._sent < self._settings.renew_deadline_seconds

    def check(self) -> None:
        """The guard before every write."""
        if not self.leads:
            raise errors.NotLeader("the Lease may be held by another process")

    async def acquire(self, kube: Kube) -> None:
        """Wait, however long, until this process leads."""
        while not await self._try(kube):  # noqa: ASYNC110 - the Lease is elsewhere; nobody here could signal
            await asyncio.sleep(self._settings.renew_seconds)
        log.info("leading", identity=self.identity)

    async def hold(self, kube: Kube) -> None:
        """Renew until that is no longer possible; returns when the Lease is lost."""
        while self.leads:
            await asyncio.sleep(self._settings.renew_seconds)
            if self.leads and not await self._try(kube, keep=True) and self._holder not in (self.identity, ""):
                break
        self._sent = None
        log.warning("lease lost", identity=self.identity)

    async def release(self, kube: Kube) -> None:
        """Give it up, so that the next one need not wait. Best effort: it expires anyway."""
        if not self.leads:
            return
        self._sent = None
        try:
            lease = await kube.get(self._path)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                await kube.replace(self._path, lease, timeout_seconds=self._settings.lease_request_timeout_seconds)
        except errors.ApiError as error:
            log.info("lease not released", error=str(error))

    @property
    def _holder(self) -> str:
        return self._observed[0][0] if self._observed else ""

    @property
    def _path(self) -> str:
        return paths.leases(self._settings.own_namespace, self._settings.lease_name)

    async def _try(self, kube: Kube, *, keep: bool = False) -> bool:
        """One attempt to take or renew. A refusal or a time-out is no success and no loss yet."""
        timeout = self._settings.lease_request_timeout_seconds
        try:
            try:
                lease = await kube.request("GET", self._path, timeout_seconds=timeout)
            except errors.NotFound:
                return await self._send(kube, "POST", paths.leases(self._settings.own_namespace), self._fresh())
            holder, record = self._note(lease)
            if holder != self.identity and (keep or (holder and not self._expired(record))):
                return False
            return await self._send(kube, "PUT", self._path, self._mine(lease, holder))
        except errors.ApiError as error:
            log.info("lease not confirmed", error=str(error))
            return False

    async def _send(self, kube: Kube, method: str, path: str, body: dict[str, Any]) -> bool:
        sent = self._monotonic()
        answer = await kube.request(
            method, path, body=body, timeout_seconds=self._settings.lease_request_timeout_seconds
        )
        self._note(answer)
        self._sent = sent
        return True

    def _note(self, lease: dict[str, Any]) -> tuple[str, Record]:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, spec.get("renewTime") or "", int(spec.get("leaseTransitions") or 0))
        if self._observed is None or self._observed[0] != record:
            self._observed = (record, self._monotonic())
        return holder, record

    def _expired(self, record: Record) -> bool:
        assert self._observed is not None
        return self._observed[0] == record and self._monotonic() - self._observed[1] >= self._settings.lease_seconds

    def _fresh(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._settings.lease_name, "namespace": self._settings.own_namespace},
            "spec": {**self._claim(), "acquireTime": _now(), "leaseTransitions": 0},
        }

    def _mine(self, lease: dict[str, Any], holder: str) -> dict[str, Any]:
        """The Lease as read, so that its resourceVersion makes this a compare-and-set."""
        spec = {**lease["spec"], **self._claim()}
        if holder != self.identity:
            spec["acquireTime"] = _now()
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return {**lease, "spec": spec}

    def _claim(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._settings.lease_seconds),
            "renewTime": _now(),
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
