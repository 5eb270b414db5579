"""Connections to public addresses only, whatever a name resolves to, or through the user's proxies.

A page, a redirect or a manifest may name any host, and a name may resolve to one address when it
is checked and to another when it is used. So the check is made at the connection: a name is
resolved once, and only a checked address is connected to.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies

import httpcore2
import httpx2

from kb.errors import SourceError

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All routed IPv6; the rest is reserved or, as fec0::/10 was, local to a network.
_UNICAST = ipaddress.ip_network("2000::/3")
# 6to4 relays and documentation addresses, which some Python releases call global.
_NOT_GLOBAL = (ipaddress.ip_network("192.88.99.0/24"), ipaddress.ip_network("3fff::/20"))


@dataclass(slots=True)
class Deadline:
    """When the current request must have ended."""

    at: float = 0.0

    def left(self, most: float | None) -> float:
        """The seconds that an operation may take. Raises httpcore2.ReadTimeout if none are left."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("it took too long")
        return left if most is None else min(left, most)


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet and embeds no other."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        embedded = [inner for inner in (ip.sixtofour, *(ip.teredo or ())) if inner is not None]
        if ip not in _UNICAST or not all(is_public(str(inner)) for inner in embedded):
            return False
    is_reserved = any(ip in network for network in _NOT_GLOBAL)
    return ip.is_global and not ip.is_multicast and not is_reserved


def addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
    """A host's IP addresses to connect to. Raises ConnectError if it has none, SourceError if all
    are private."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} is not known") from error
    resolved = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    allowed = [address for address in resolved if allow_private or is_public(address)]
    if not allowed:
        where = host if host == resolved[0] else f"{host} ({resolved[0]})"
        raise SourceError(
            f"{where} is a private address and is not connected to: "
            "`kb add --allow-private` allows it"
        )
    return allowed


class Transport(httpx2.HTTPTransport):
    """httpx's transport with our check in it."""

    def __init__(self, context: ssl.SSLContext, deadline: Deadline, *, allow_private: bool) -> None:
        super().__init__(verify=context)
        if "_pool" not in vars(self):  # nothing would be checked
            raise AssertionError("httpx2.HTTPTransport keeps its connections elsewhere")
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=4,
            keepalive_expiry=10,
            network_backend=_Backend(deadline, allow_private),
        )


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, deadline: Deadline, allow_private: bool) -> None:
        self._deadline = deadline
        self._allow_private = allow_private
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first of a host's addresses that answers."""
        failure: Exception | None = None
        for address in addresses(host, port, allow_private=self._allow_private):
            try:
                stream = self._inner.connect_tcp(
                    address, port, self._deadline.left(timeout), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return _Stream(stream, self._deadline)
        assert failure is not None
        raise failure


class _Stream(httpcore2.NetworkStream):
    """A connection whose deadline a trickle of bytes does not extend."""

    def __init__(self, inner: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        left = self._deadline.left(timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


@dataclass(frozen=True, slots=True)
class Proxied(httpx2.BaseTransport):
    """Sends each request through its scheme's proxy, or directly."""

    direct: httpx2.BaseTransport
    proxies: dict[str, httpx2.BaseTransport]  # by scheme
    excepted: str  # as `NO_PROXY` has it

    def way(self, url: httpx2.URL) -> httpx2.BaseTransport:
        port = url.port or (443 if url.scheme == "https" else 80)
        if is_excepted(url.host, port, self.excepted):
            return self.direct
        return self.proxies.get(url.scheme, self.direct)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.way(request.url).handle_request(request)

    def close(self) -> None:
        for transport in (self.direct, *self.proxies.values()):
            transport.close()


def environment_proxies(direct: httpx2.BaseTransport, context: ssl.SSLContext) -> Proxied:
    """The proxies that the environment names. Raises SourceError if one cannot be used."""
    names = getproxies()
    proxies: dict[str, httpx2.BaseTransport] = {}
    for scheme in ("http", "https"):
        if proxy := names.get(scheme) or names.get("all"):
            address = proxy if "://" in proxy else f"http://{proxy}"  # as curl does
            try:
                proxies[scheme] = httpx2.HTTPTransport(verify=context, proxy=address)
            except (ValueError, ImportError, httpx2.InvalidURL) as error:
                raise SourceError(
                    f"the proxy that {scheme.upper()}_PROXY or ALL_PROXY names cannot be used: "
                    "give one such as http://proxy.example:8080; SOCKS needs `pip install socksio`"
                ) from error
    return Proxied(direct, proxies, names.get("no", ""))


def is_excepted(host: str, port: int, excepted: str) -> bool:
    """Whether `NO_PROXY` excepts a host: by name, suffix, address, network and port, or all."""
    host = host.strip("[]").casefold().rstrip(".")
    entries = (entry.strip().casefold() for entry in excepted.split(","))
    return any(_fits(host, port, entry) for entry in entries if entry)


def _fits(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass  # one of the two is a name, or a port follows
    name, _, behind = entry.rpartition(":")
    if name and behind.isdecimal():
        return int(behind) == port and _fits(host, port, name)
    name = entry.removeprefix("*").lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
