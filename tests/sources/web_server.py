"""A small http server for tests: pages that a test changes, and what was asked of it."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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


@contextlib.contextmanager
def serving() -> Iterator[Site]:
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
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
