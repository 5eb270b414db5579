"""Connections to public addresses only, whatever a name resolves to, or by the proxies of the user.

A page, a redirect or a manifest may name any host, and a name may resolve to one address when it
is checked and to another when it is used. So the check stands where the connection is made: a name
is resolved once, and what was checked is what is connected to.
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
# All that is routed of IPv6; the rest is reserved or, as fec0::/10 was, a network's own.
_UNICAST = ipaddress.ip_network("2000::/3")
# Some Python releases take them for global: relays of 6to4, and addresses for documentation.
_NOT_GLOBAL = (ipaddress.ip_network("192.88.99.0/24"), ipaddress.ip_network("3fff::/20"))


@dataclass(slots=True)
class Deadline:
    """When the request at hand must have ended."""

    at: float = 0.0

    def left(self, most: float | None) -> float:
        """The seconds that an operation may take.

        Raises:
            httpcore2.ReadTimeout: there are none.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("it took too long")
        return left if most is None else min(left, most)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, and embeds no other."""
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
    """The IP addresses of a host that may be connected to.

    Raises:
        httpcore2.ConnectError: it has none.
        SourceError: it has only private ones.
    """
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
    """httpx's way to the network with our check in it."""

    def __init__(self, context: ssl.SSLContext, deadline: Deadline, *, allow_private: bool) -> None:
        super().__init__(verify=context)
        if "_pool" not in vars(self):  # else nothing would be checked
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
    """A connection on which a trickle of bytes does not put the deadline off."""

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
    """The way of each request: by its scheme's proxy, or without one."""

    direct: httpx2.BaseTransport
    proxies: dict[str, httpx2.BaseTransport]  # by scheme
    excepted: str  # as `NO_PROXY` has it

    def way(self, url: httpx2.URL) -> httpx2.BaseTransport:
        """What sends a request to an address."""
        port = url.port or (443 if url.scheme == "https" else 80)
        if is_excepted(url.host, port, self.excepted):
            return self.direct
        return self.proxies.get(url.scheme, self.direct)

    def is_proxied(self, url: httpx2.URL) -> bool:
        return self.way(url) is not self.direct

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.way(request.url).handle_request(request)

    def close(self) -> None:
        for transport in (self.direct, *self.proxies.values()):
            transport.close()


def environment_proxies(direct: httpx2.BaseTransport, context: ssl.SSLContext) -> Proxied:
    """The ways that the environment names.

    Raises:
        SourceError: it names a proxy that cannot be used.
    """
    names = getproxies()
    proxies: dict[str, httpx2.BaseTransport] = {}
    for scheme in ("http", "https"):
        if proxy := names.get(scheme) or names.get("all"):
            address = proxy if "://" in proxy else f"http://{proxy}"  # as curl has it
            try:
                proxies[scheme] = httpx2.HTTPTransport(verify=context, proxy=address)
            except (ValueError, ImportError, httpx2.InvalidURL) as error:
                raise SourceError(
                    f"the proxy that {scheme.upper()}_PROXY or ALL_PROXY names cannot be used: "
                    "give one such as http://proxy.example:8080; SOCKS needs `pip install socksio`"
                ) from error
    return Proxied(direct, proxies, names.get("no", ""))


def is_excepted(host: str, port: int, excepted: str) -> bool:
    """Whether `NO_PROXY` excepts a host: by name or its end, by address or network, or all.

    A port may stand behind, and then it has to be the same.
    """
    host = host.strip("[]").casefold().rstrip(".")
    entries = (entry.strip().casefold() for entry in excepted.split(","))
    return any(_fits(host, port, entry) for entry in entries if entry)


def _fits(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
        return ipaddress.ip_address(host) in network
    except ValueError:
        pass  # one of the two is a name, or a port stands behind
    name, _, behind = entry.rpartition(":")
    if name and behind.isdecimal():
        return int(behind) == port and _fits(host, port, name)
    name = entry.removeprefix("*").lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
