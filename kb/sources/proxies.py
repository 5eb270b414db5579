"""The proxies that the environment names, and the addresses that it excepts from them."""

from __future__ import annotations

import ipaddress
import ssl
from urllib.request import getproxies

import httpx2

from kb.errors import SourceError

__all__ = ["Proxied", "environment_proxies", "is_excepted"]

Transports = dict[str, httpx2.BaseTransport]


class Proxied(httpx2.BaseTransport):
    """The way of each request: by its scheme's proxy, or without one.

    Args:
        direct: the way of what no proxy is named for, or what is excepted.
        excepted: as `NO_PROXY` has it.
    """

    def __init__(self, direct: httpx2.BaseTransport, proxies: Transports, excepted: str) -> None:
        self._direct = direct
        self._proxies = proxies
        self._excepted = excepted

    def way(self, url: httpx2.URL) -> httpx2.BaseTransport:
        """What sends a request to an address."""
        if is_excepted(
            url.host, url.port or (443 if url.scheme == "https" else 80), self._excepted
        ):
            return self._direct
        return self._proxies.get(url.scheme, self._direct)

    def is_proxied(self, url: httpx2.URL) -> bool:
        return self.way(url) is not self._direct

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        return self.way(request.url).handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        for transport in (self._direct, *self._proxies.values()):
            transport.close()


def environment_proxies(direct: httpx2.BaseTransport, context: ssl.SSLContext) -> Proxied:
    """The ways that the environment says.

    Raises:
        SourceError: it names a proxy that cannot be used.
    """
    found = getproxies()
    proxies = {
        scheme: _transport(proxy, scheme, context)
        for scheme in ("http", "https")
        if (proxy := found.get(scheme) or found.get("all"))
    }
    return Proxied(direct, proxies, found.get("no", ""))


def is_excepted(host: str, port: int, excepted: str) -> bool:
    """Whether `NO_PROXY` excepts a host: by name or its end, by address or network, or all.

    A port may stand behind, and then it has to be the same.
    """
    host = host.strip("[]").casefold().rstrip(".")
    return any(
        _fits(host, port, entry.strip().casefold())
        for entry in excepted.split(",")
        if entry.strip()
    )


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


def _transport(proxy: str, scheme: str, context: ssl.SSLContext) -> httpx2.BaseTransport:
    address: str = proxy if "://" in proxy else f"http://{proxy}"  # as curl has it
    try:
        return httpx2.HTTPTransport(verify=context, proxy=address)
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        raise SourceError(
            f"the proxy that {scheme.upper()}_PROXY or ALL_PROXY names cannot be used: give one "
            "such as http://proxy.example:8080; SOCKS needs `pip install socksio`"
        ) from error
