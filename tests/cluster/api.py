"""A reader of the cluster's API for the harness itself, without the start of a kubectl process for every look.

Rule: it only reads. Whatever changes the cluster goes through kubectl, as a person would do it.
"""

import http.client
import json
import ssl
from typing import Any

from tests.cluster import layout, netns
from tests.cluster.layout import Layout


def get(lay: Layout, path: str) -> bytes | None:
    """The body of a 200 answer, or None when there is no server or another answer."""

    def ask() -> bytes | None:
        context = ssl.create_default_context(cafile=str(lay.pki / "ca.crt"))
        context.load_cert_chain(lay.pki / "admin.crt", lay.pki / "admin.key")
        connection = http.client.HTTPSConnection(layout.BRIDGE_IP, layout.API_PORT, timeout=5, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return body if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    return netns.call(lay.netns_path("cp"), ask)


def items(lay: Layout, path: str) -> list[dict[str, Any]]:
    body = get(lay, path)
    return [] if body is None else list(json.loads(body)["items"])


def one(lay: Layout, path: str) -> dict[str, Any] | None:
    body = get(lay, path)
    return None if body is None else dict(json.loads(body))


def condition(item: dict[str, Any], kind: str) -> bool:
    """Whether the object's status says this condition is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in item.get("status", {}).get("conditions", []))


def ready_nodes(lay: Layout) -> set[str]:
    return {n["metadata"]["name"] for n in items(lay, "/api/v1/nodes") if condition(n, "Ready")}
