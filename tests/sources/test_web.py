"""Fetching from strangers: bounded in size, time and redirects, from public addresses only."""

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from sources.web_server import Site, make_certificate, serving

from kb.errors import SourceError, UsageError
from kb.sources import web
from kb.sources.address import web_address
from kb.sources.transport import addresses, environment_proxies, is_excepted, is_public
from kb.sources.web import Web

MOST = 1_000_000
Handler = http.server.BaseHTTPRequestHandler


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def get(url: str, *, allow_private: bool = True) -> bytes:
    with Web(allow_private=allow_private) as client:
        return client.get(url, MOST).data


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "ff02::1"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2001:db8::1", "::127.0.0.1", "host"),
        *(
            "fec0::1",
            "feff::1",
            "192.88.99.1",
            "2002:c058:6301::1",
            "64:ff9b::c058:6301",
            "3fff::1",
        ),
        *("5f00::1", "4000::1", "::ffff:8.8.8.8", "2001::ff", "64:ff9b::e000:1"),
    ],
)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "192.88.98.1", "2606:4700::1", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_a_public_address_is_known(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]"])
def test_this_machine_is_not_asked_however_it_is_written(site: Site, host: str) -> None:
    site.put("/", "secret")
    with pytest.raises(SourceError, match="private address"):
        get(site.url.replace("127.0.0.1", host), allow_private=False)
    assert site.asked == []


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("/", "secret")
    answers = iter(["192.0.2.1", "127.0.0.1"])  # for documentation: nobody is there
    asked = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host[0].isalpha():
            asked.append(host)
            host = next(answers)
        return [(2, 1, 6, "", (host, port))]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("kb.sources.transport.is_public", lambda address: address == "192.0.2.1")
    monkeypatch.setattr(web, "STEP_SECONDS", 0.2)
    with pytest.raises(SourceError, match="cannot be fetched"):
        get(site.url.replace("127.0.0.1", "rebinding.example"), allow_private=False)
    assert asked == ["rebinding.example"]
    assert site.asked == []


def redirecting(to: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def test_a_redirect_is_checked_like_an_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kb.sources.transport.is_public", lambda address: address == "127.0.0.1")
    site.put("/good", "text")
    site.pages["/"] = redirecting("/good")
    assert get(site.url, allow_private=False) == b"text"
    site.pages["/"] = redirecting("http://169.254.169.254/latest/meta-data/")
    with pytest.raises(SourceError, match="private address"):
        get(site.url, allow_private=False)


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://x/y", "gopher://x", "http://u:p@x/"])
def test_a_redirect_leads_to_http_only(site: Site, to: str) -> None:
    site.pages["/"] = redirecting(to)
    with pytest.raises(SourceError, match="cannot be fetched"):
        get(site.url)


def test_a_redirect_from_https_stays_encrypted(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    site.put("/", "plain")
    with serving(certificate) as encrypted:
        encrypted.put("/good", "text")
        encrypted.pages["/"] = redirecting("/good")
        assert get(encrypted.url) == b"text"
        encrypted.pages["/"] = redirecting(site.url)
        with pytest.raises(SourceError, match="not encrypted"):
            get(encrypted.url)
    assert site.asked == []


def test_redirects_end(site: Site) -> None:
    site.pages["/"] = redirecting("/")
    with pytest.raises(SourceError, match="from page to page"):
        get(site.url)
    assert len(site.asked) == 6


def test_what_is_too_large_is_not_read(site: Site) -> None:
    site.put("/", b"x" * (MOST + 1))
    with pytest.raises(SourceError, match="more than 1 MB"):
        get(site.url)


def coded(coding: str, data: bytes) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", coding)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def test_a_bomb_is_not_unpacked(site: Site) -> None:
    site.pages["/"] = coded("gzip", gzip.compress(b"text"))
    assert get(site.url) == b"text"
    site.pages["/"] = coded("gzip", gzip.compress(b"0" * 300_000_000))
    with pytest.raises(SourceError, match="more than 1 MB"):
        get(site.url)
    for coding in ("gzip, gzip", "br", "zstd"):
        site.pages["/"] = coded(coding, gzip.compress(gzip.compress(b"text")))
        with pytest.raises(SourceError, match="not asked for"):
            get(site.url)


@pytest.mark.parametrize("in_head", [True, False])
def test_a_server_that_drips_is_left(
    site: Site, monkeypatch: pytest.MonkeyPatch, in_head: bool
) -> None:
    over = threading.Event()

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X: " if in_head else b"\r\n"))
        while not over.wait(0.05):
            handler.wfile.write(b"x")

    site.pages["/"] = drip
    monkeypatch.setattr(web, "MOST_SECONDS", 0.5)
    try:
        with pytest.raises(SourceError, match="took too long"):
            get(site.url)
    finally:
        over.set()


def test_what_is_no_http_is_an_error(site: Site) -> None:
    def nonsense(handler: Handler) -> None:
        handler.wfile.write(b"\x00\xff nonsense\r\n\r\n")
        handler.close_connection = True

    site.pages["/"] = nonsense
    with pytest.raises(SourceError, match="cannot be fetched"):
        get(site.url)


def test_an_unchanged_page_comes_out_of_what_is_kept_and_keeps_its_date(site: Site) -> None:
    site.put("/", "text")
    with Web(allow_private=True) as client:
        first = client.get(site.url, MOST)
        assert client.get(site.url, MOST) == first
    assert [status for _, status in site.asked] == [200, 304]


@pytest.mark.parametrize(
    "source",
    [
        *("http://", "https:///x", "http://u:p@host/", "http://host:99999/", "http://[::1/"),
        *("http://host/a b", "http://host/\x00", "http://host/\\x", "http://host/" + "x" * 3000),
        *("http://host/\udce4", "http://\udcff/x", "https://[::1/#a", "https://a]/#b"),
    ],
)
def test_a_malformed_address_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="not the address of a page"):
        web_address(source)


def test_an_address_has_one_form() -> None:
    assert web_address("HTTPS://Example.COM#top") == "https://example.com/"
    assert web_address("http://[::1]:80/a?b=c#d") == "http://[::1]:80/a?b=c"


def test_a_proxy_of_the_environment_is_used_and_private_addresses_are_refused_before_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site is asked as a proxy is: for whole addresses."""
    monkeypatch.setenv("HTTP_PROXY", site.url.removeprefix("http://"))  # as curl takes it too
    page = "http://handbook.invalid/page"
    site.put(page, "behind the proxy")
    assert get(page, allow_private=False) == b"behind the proxy"
    for host in ("127.0.0.1", "169.254.169.254", "localhost", "[::1]"):
        with pytest.raises(SourceError, match="private address"):
            get(f"http://{host}/secret", allow_private=False)

    def leads_inside(handler: Handler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "http://127.0.0.1/secret")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    site.pages["http://handbook.invalid/away"] = leads_inside
    with pytest.raises(SourceError, match="private address"):
        get("http://handbook.invalid/away", allow_private=False)
    assert {path for path, _ in site.asked} == {page, "http://handbook.invalid/away"}


@pytest.mark.parametrize(
    "excepted",
    ["localhost,127.0.0.1,::1", "*", "10.0.0.0/8, 127.0.0.0/8", "[::1],127.0.0.1:{port}"],
)
def test_what_no_proxy_excepts_is_asked_directly(
    site: Site, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    port = site.url.rpartition(":")[2]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("NO_PROXY", excepted.format(port=port))
    site.put("/page", "directly")
    assert get(f"{site.url}/page") == b"directly"


@pytest.mark.parametrize(
    ("host", "excepted", "expected"),
    [
        ("docs.example.com", "example.com", True),
        ("docs.example.com", ".example.com", True),
        ("docs.example.com", "*.example.com", True),
        ("example.com", "other.org, example.com", True),
        ("notexample.com", "example.com", False),
        ("example.com", "docs.example.com", False),
        ("example.com", "example.com:443", True),
        ("example.com", "example.com:8080", False),
        ("fe80::1", "fe80::/10", True),
        ("[::1]", "::1", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("example.com", "", False),
        ("example.com", " , ", False),
    ],
)
def test_names_and_networks_are_excepted_from_proxies(
    host: str, excepted: str, expected: bool
) -> None:
    assert is_excepted(host, 443, excepted) is expected


def test_a_port_that_a_proxy_excepts_is_that_of_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "plain.example:80,secure.example:443")
    context = httpx2.create_ssl_context()
    with httpx2.HTTPTransport(verify=context) as direct:
        ways = environment_proxies(direct, context)
        asked = [
            httpx2.URL(f"{scheme}://{host}.example/")
            for host in ("plain", "secure")
            for scheme in ("http", "https")
        ]
        assert [ways.way(url) is not ways.direct for url in asked] == [False, True, True, False]


def test_a_private_address_is_told_behind_the_name_that_has_it() -> None:
    with pytest.raises(SourceError, match=r"^localhost \((127\.0\.0\.1|::1)\) is a private"):
        addresses("localhost", 80, allow_private=False)
    with pytest.raises(SourceError, match=r"^127\.0\.0\.1 is a private"):
        addresses("127.0.0.1", 80, allow_private=False)


def test_a_proxy_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://proxy:1")
    with pytest.raises(SourceError, match="HTTPS_PROXY"):
        get("https://example.com/")
