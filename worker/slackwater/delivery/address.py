"""Where a delivery may go. Rule: an administrator's URL, and from there only to a public address, unless they said
that a private one is meant; the address that was checked is the one that is called.

A name may resolve to another address the next moment, so nobody resolves it a second time. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from slackwater.errors import InvalidInput, SlackwaterError

URL_LENGTH = 2048
_PORTS = {"https": 443, "http": 80}


class NotAllowed(SlackwaterError):
    """The host leads to an address that is not public."""


@dataclass(frozen=True)
class Target:
    """A URL taken apart: what is called, and what the receiver is told it was called."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def url_at(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse(url: str) -> Target:
    """Raises InvalidInput for whatever is not plain http or https with a host, or carries a password."""
    if len(url) > URL_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput("url", URL_LENGTH, "must be printable ASCII without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput("url", None, f"is none: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InvalidInput("url", sorted(_PORTS), "must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidInput("url", None, "must hold no user, password or fragment")
    if port == 0:
        raise InvalidInput("url", None, "must have a port above 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path)


def public(address: str) -> bool:
    """Whether it is an address of the public internet: not loopback, private, link-local, shared, multicast."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inside = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inside is not None:
            return public(str(inside))
        if found in _NAT64:
            return public(str(ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)))
    return found.is_global and not found.is_multicast


async def resolve(target: Target, *, private: bool) -> str:
    """One address to call. Raises NotAllowed if any of the host's addresses is not public, OSError if there is none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise OSError(f"{target.host} has no address")
    if not private:
        for address in addresses:
            if not public(address):
                raise NotAllowed(f"{target.host} leads to an address that is not public")
    return addresses[0]


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
