"""Where the API server keeps what we use. Rule: every path is built here, so that the rights can be read off it."""

from __future__ import annotations

from slackwater_operator.names import GROUP, PLURAL, VERSION


def _at(base: str, namespace: str | None, kind: str, name: str) -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{scope}/{kind}" + (f"/{name}" if name else "")


def pools(namespace: str | None = None, name: str = "") -> str:
    return _at(f"/apis/{GROUP}/{VERSION}", namespace, PLURAL, name)


def pool_status(namespace: str, name: str) -> str:
    return pools(namespace, name) + "/status"


def pods(namespace: str | None = None, name: str = "") -> str:
    return _at("/api/v1", namespace, "pods", name)


def nodes(name: str = "") -> str:
    return _at("/api/v1", None, "nodes", name)


def revisions(namespace: str | None = None, name: str = "") -> str:
    return _at("/apis/apps/v1", namespace, "controllerrevisions", name)


def budgets(namespace: str | None = None, name: str = "") -> str:
    return _at("/apis/policy/v1", namespace, "poddisruptionbudgets", name)


def leases(namespace: str, name: str = "") -> str:
    return _at("/apis/coordination.k8s.io/v1", namespace, "leases", name)


def events(namespace: str) -> str:
    return _at("/apis/events.k8s.io/v1", namespace, "events", "")
