"""A small http server for tests: pages that a test changes, and what was asked of it."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@dataclass
class Site:
    """What a server has. A page is its type and its bytes, or an answer of its own."""

    url: str = ""
    pages: dict[str, tuple[str, bytes] | Answer] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)  # path and status

    def put(self, path: str, content: str | bytes, media_type: str = "text/html") -> None:
        data = content if isinstance(content, bytes) else content.encode()
        self.pages[path] = (media_type, data)


def make_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, behind its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    form = (PrivateFormat.PKCS8, NoEncryption())
    file = folder / "certificate.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, *form)
        + builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    return file


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[Site]:
    """A server on this machine, over TLS where it has a certificate."""
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = site.pages.get(self.path)
            if callable(page):
                site.asked.append((self.path, 0))
                page(self)
                return
            if page is None:
                self._answer(404, "text/plain", b"nothing")
                return
            media_type, data = page
            tag = f'"{hashlib.sha256(data).hexdigest()[:12]}"'
            if self.headers.get("If-None-Match") == tag:
                self._answer(304, media_type, b"", tag)
            else:
                self._answer(200, media_type, data, tag)

        def _answer(self, status: int, media_type: str, data: bytes, tag: str = "") -> None:
            site.asked.append((self.path, status))
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(data)))
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:  # a client that goes away is no error here
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        site.url = f"{scheme}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
