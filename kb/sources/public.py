"""Connections to public addresses only, whatever a name resolves to.

A page, a redirect or a manifest may name any host, and a name may resolve to one address when it
is checked and to another when it is used. So the check stands where the connection is made: a name
is resolved once, and what was checked is what is connected to.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2

from kb.errors import SourceError

if TYPE_CHECKING:
    import ssl

__all__ = ["Deadline", "Transport", "is_public"]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SHARED_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")


@dataclass(slots=True)
class Deadline:
    """Until when the request at hand may take."""

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
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return isinstance(ip, ipaddress.IPv6Address) and ip in _NAT64 and _embedded_is_public(ip)
    return not isinstance(ip, ipaddress.IPv6Address) or _embedded_is_public(ip)


def _embedded_is_public(ip: ipaddress.IPv6Address) -> bool:
    if ip in _SHARED_NAT64:
        return False
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return all(one is None or one.is_global for one in inner)


def addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The IP addresses of a host that may be connected to.

    Raises:
        httpcore2.ConnectError: it has none.
        SourceError: it has only private ones.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError(f"{host} is not known") from error
    known = list(dict.fromkeys(str(one[4][0]) for one in found))
    allowed = [one for one in known if allow_private or is_public(one)]
    if not allowed:
        where = host if host == known[0] else f"{host} ({known[0]})"
        raise SourceError(
            f"{where} is a private address and is not connected to: "
            "`kb add --allow-private` allows it"
        )
    return allowed


class Transport(httpx2.BaseTransport):
    """httpx's way to the network with our check in it."""

    def __init__(self, context: ssl.SSLContext, deadline: Deadline, *, allow_private: bool) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=4,
            keepalive_expiry=10,
            network_backend=_Backend(deadline, allow_private),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the body of the response is still to be read."""
        response = self._pool.handle_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        assert isinstance(response.stream, Iterable)
        return httpx2.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Any:
        return self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class _Backend(httpcore2.NetworkBackend):
    """Connects to checked addresses, and until the deadline."""

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
    """A connection on which no single byte keeps the deadline off."""

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
        secured = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left(timeout))
        return _Stream(secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
