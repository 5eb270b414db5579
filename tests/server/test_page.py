"""The page as it is sent: escaped, sealed, and changing nothing for who has no right to."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from http_process import HttpServer
from server_process import HANGS, environment
from support import ROOT

from kb.ingest.discoveries import record_discovery
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.tools.session import open_session

TEMPLATES = ROOT / "kb" / "assets" / "page"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ATTACK = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
HOSTILE = f"""# {ATTACK}

A zebra says {ATTACK} and </script><!-- and ]]> and {{{{ 7 * 7 }}}}.

See [this](javascript:document.title='taken'), [that](data:text/html,{ATTACK}),
[a page](https://example.com/?a="onclick='x'), [nobody](./none.md) and [a friend](friend.md).
"""
CALLOUTS = """# Callouts

> [!WARNING]
> Keep [clear](friend.md) of the `mast`.

!!! danger "Of MkDocs"
    Text.

:::tip
Text.
:::

- [x] done
- [ ] open

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x):  # a comment
    return "text", 1
```

Text[^1] and $x^2$, see [nobody](none.md).

[^1]: A note.
"""


def make_file(folder: Path, windrose_file: Path) -> Path:
    """The handbook with a hostile document, a long one, and two discoveries."""
    file = Path(shutil.copy(windrose_file, folder / "kb.db"))
    odd = folder / "odd"
    odd.mkdir()
    (odd / 'a "b" & <c>.md').write_text(HOSTILE)
    (odd / "friend.md").write_text("# Friend\n\nBack to [it](a%20%22b%22%20%26%20%3Cc%3E.md).\n")
    (odd / "callouts.md").write_text(CALLOUTS)
    (odd / "long.md").write_text(
        "# Long\n\n" + "".join(f"Line {n} of many.\n" for n in range(9000))
    )
    with open_session(Database(file), project=folder) as session:
        sync_collection(session.database, register(session.database, str(odd)))
        record_discovery(session.model, f"We use {ATTACK} as a pattern", module="station")
        record_discovery(session.model, "Decided to keep raw pulses, not speeds", module="store")
    return file


@pytest.fixture(scope="module")
def file(windrose_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_file(tmp_path_factory.mktemp("page"), windrose_file)


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[HttpServer]:
    with HttpServer(file) as running:
        yield running


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


ODD = {"collection": "odd", "id": 'a "b" & <c>.md'}
PAGES = [
    "/",
    "/?q=zebra",
    f"/?{urlencode({'q': ATTACK})}",
    "/results?q=zebra",
    f"/doc?{urlencode({**ODD, 'from': 3, 'to': 4})}",
    f"/doc?{urlencode({**ODD, 'view': 'source'})}",
    "/doc?collection=odd&id=friend.md",
    f"/doc?{urlencode({'collection': ATTACK, 'id': ATTACK})}",
    "/graph",
    "/collections",
    "/collection?name=odd",
    "/activity",
    "/discoveries",
]


@pytest.mark.parametrize("path", PAGES)
def test_nothing_of_a_document_becomes_markup(path: str, server: HttpServer) -> None:
    _, headers, text = server.request("GET", path)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    page = Elements(text)
    for tag, attributes in page.found:
        assert tag not in ("img", "iframe", "object", "base", "style")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            assert attributes.get(name, "/").startswith(("/", "#", "https://example.com/"))
        if tag == "script":
            own = attributes.get("src", "").startswith(("/static/", "/vendor/"))
            assert own or attributes.get("type") == "application/json"
    for script in filter(str.strip, page.scripts):
        json.loads(script)
    said = text.partition("zebra")[2]
    assert "says" not in said or "{{ 7 * 7 }}" in said


def test_a_document_shows_its_passage_its_links_and_who_cites_it(server: HttpServer) -> None:
    source = f"/doc?{urlencode({**ODD, 'from': 3, 'to': 4, 'view': 'source'})}"
    _, _, text = server.request("GET", source)
    passage = re.findall(r'id="L(\d+)" class="line[^"]* passage"', text)
    assert passage == ["3", "4"]
    hrefs = [attributes.get("href", "") for _, attributes in Elements(text).found]
    assert "/doc?collection=odd&id=friend.md" in hrefs
    assert sum("friend.md&from=3" in href for href in hrefs) == 1  # it cites this, in line 3
    assert 'class="broken"' in text
    assert not [href for href in hrefs if href.startswith(("javascript:", "data:"))]


def test_a_long_document_comes_in_parts_and_every_line_can_be_reached(server: HttpServer) -> None:
    seen: set[int] = set()
    path = "/doc?collection=odd&id=long.md&view=source"
    for _ in range(6):
        _, _, text = server.request("GET", path)
        seen |= {int(number) for number in re.findall(r'id="L(\d+)"', text)}
        found = re.search(r'href="([^"#]+)[^"]*">More lines', text)
        if not found:
            break
        path = found[1].replace("&amp;", "&")
    assert seen == set(range(1, 9003))
    far = "/doc?collection=odd&id=long.md&from=7000&to=7001"
    _, _, text = server.request("GET", f"{far}&view=source")
    assert 'id="L7000" class="line passage"' in text
    _, _, text = server.request("GET", far)
    assert re.search(r'class="passage".*<span id="L7000">.*Line 6998 of many', text, re.DOTALL)


def test_what_is_not_there_is_said_with_near_names(server: HttpServer) -> None:
    status, _, text = server.request("GET", "/doc?collection=odd&id=frend.md")
    assert status == 404
    assert "frend.md" in text
    assert server.request("GET", "/collection?name=windros")[0] == 404
    status, headers, text = server.request("GET", "/nothing")
    assert (status, text) == (404, "Not Found")
    status, headers, text = server.request("GET", "/nothing", None, {"Accept": "text/html"})
    assert status == 404
    assert "There is no page at /nothing" in text
    assert "default-src 'none'" in headers["content-security-policy"]
    assert server.request("GET", "/static/../../schema.sql")[0] == 404
    assert server.request("GET", "/static/%2e%2e/base.html")[0] == 404
    assert server.request("GET", "/doc?collection=odd&id=friend.md&from=x&to=-1")[0] == 200


def form_of(text: str, wanted: str) -> dict[str, str]:
    """The fields of the form that forgets a discovery."""
    piece = next(part for part in text.split("<li>") if wanted in part)
    inputs = [attributes for tag, attributes in Elements(piece).found if tag == "input"]
    return {one["name"]: one["value"] for one in inputs}


def post(
    server: HttpServer, fields: dict[str, str], headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS)
    try:
        connection.request("POST", "/forget", urlencode(fields), {**FORM, **(headers or {})})
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, found, reply.read().decode()
    finally:
        connection.close()


def test_only_the_pages_own_form_forgets(server: HttpServer) -> None:
    _, _, text = server.request("GET", "/discoveries")
    fields = form_of(text, "raw pulses")
    for wrong in ("", "x", fields["secret"][:-1]):
        assert post(server, {**fields, "secret": wrong})[0] == 403
    assert post(server, {"id": fields["id"]})[0] == 403
    assert post(server, fields, {"Origin": "http://evil.example"})[0] == 403
    assert post(server, fields, {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert server.request("GET", f"/forget?{urlencode(fields)}")[0] == 405
    assert "raw pulses" in server.request("GET", "/discoveries")[2]

    status, headers, _ = post(server, fields, {"Origin": f"http://127.0.0.1:{server.port}"})
    assert status == 303
    after = server.request("GET", headers["location"])[2]
    assert f"Forgotten: {fields['id']}" in after
    assert "raw pulses" not in after
    assert post(server, fields)[0] == 404  # it is gone


def test_activity_shows_what_was_asked(server: HttpServer) -> None:
    from http_process import INITIALIZE

    _, headers, _ = server.request("POST", "/mcp", INITIALIZE)
    session = {"Mcp-Session-Id": headers["mcp-session-id"]}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    server.request("POST", "/mcp", ready, session)
    call = {"name": "documents_search", "arguments": {"query": f"where is {ATTACK}"}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    assert server.request("POST", "/mcp", message, session)[0] == 200
    text = server.request("GET", "/activity")[2]
    assert "test 1" in text  # the client
    assert "where is &lt;script&gt;" in text
    assert "<td>documents_search</td>" in text


def test_the_page_is_for_this_machine_alone(file: Path) -> None:
    token = "correct-horse-battery-staple"
    right = {"Authorization": f"Bearer {token}"}
    with HttpServer(file, "--http", "0.0.0.0:0", KB_TOKEN=token) as server:
        for path in ("/", "/discoveries", "/static/page.js"):
            assert server.request("GET", path, None, right)[0] == 404
    with HttpServer(file, KB_TOKEN=token) as server:
        assert server.request("GET", "/discoveries")[0] == 401
        html = {"Accept": "text/html"}
        status, headers, text = server.request("GET", "/discoveries?a=%22b", None, html)
        assert status == 401
        assert '<form action="/discoveries">' in text
        assert '<input type="hidden" name="a" value="&#34;b">' in text
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["www-authenticate"] == "Bearer"
        assert server.request("GET", "/static/page.css", None, html)[0] == 401
        assert "html" not in server.request("GET", "/mcp", None, html)[2]
        _, headers, _ = server.request("GET", f"/discoveries?token={token}")
        assert headers["location"] == "/discoveries"
        cookie = headers["set-cookie"].partition(";")[0]
        assert server.request("GET", "/discoveries", None, {"Cookie": cookie})[0] == 200


def test_kb_ui_shows_the_server_that_runs_already(file: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(file), "ui", "--no-open"]
    with HttpServer(file) as server:
        shown = subprocess.run(
            command, env=environment(), capture_output=True, encoding="utf-8", timeout=HANGS
        )
    assert shown.returncode == 0
    assert shown.stderr.endswith(f"kb: the page is at http://127.0.0.1:{server.port}/\n")
    refused = subprocess.run(
        [*command, "--http", "0.0.0.0"], env=environment(), capture_output=True, timeout=HANGS
    )
    assert refused.returncode == 2


def test_kb_ui_takes_the_port_that_is_asked_for(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "kb", "--db", str(file), "ui", "--no-open", "--port", port]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as page:
        assert page.stderr is not None
        assert page.stderr.readline() == f"kb: the page is at http://127.0.0.1:{port}/\n"
        page.terminate()


def test_templates_leave_escaping_on_and_hold_no_script() -> None:
    for template in TEMPLATES.glob("*.html"):
        text = template.read_text()
        assert re.findall(r"(\w+)\|safe", text) == (
            {"graph.html": ["data"], "document.html": ["rendered"], "token.html": ["style"]}.get(
                template.name, []
            )
        )
        assert "autoescape" not in text
        assert not re.search(r"\s(?:style|on\w+)=", text)
        for script in re.findall(r"<script([^>]*)>", text):
            assert "src=" in script or "application/json" in script


def test_the_page_is_light_before_its_data() -> None:
    assets = TEMPLATES.parent
    files = [*(assets / "page").rglob("*.*"), *(assets / "vendor").glob("*.js")]
    assert sum(file.stat().st_size for file in files) < 300_000


def test_addresses_keep_every_letter_of_a_name() -> None:
    from kb.server.page.render import document_address

    name = 'a "b" & <c>#?%.md'
    assert quote(name, safe="").replace("%20", "+") in document_address("odd", name, 3, 4)
    assert document_address("odd", name, 3).endswith("#L3")


def test_the_page_shows_all_files_and_says_which(windrose_copy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "note.md").write_text("# Note\n\nThe heliotrope stands beside the mast.\n")
    (folder / "other.md").write_text("# Other\n\nSee the [note](note.md) on it.\n")
    beside = tmp_path / "beside.db"
    with open_session(Database(beside), project=folder) as session:
        sync_collection(session.database, register(session.database, str(folder)))
        session.log.begin("a-client")
        session.log.note("query", "context_search", "how high is the mast?")
        session.calls.add("read_file", "", 4.0, 10)
        record_discovery(session.model, "Masts are painted every spring", module="mast")
    with open_session(Database(windrose_copy), project=folder) as session:
        session.calls.add("read_file", "", 2.0, 10)
        record_discovery(session.model, "Decided to keep raw pulses, not speeds", module="store")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"nothing that could be opened")
    with HttpServer(windrose_copy, "--db", str(beside), "--db", str(damaged)) as server:

        def shown(path: str) -> str:
            status, _, text = server.request("GET", path)
            assert status == 200, text
            return text

        listed = shown("/collections")
        assert listed.index("<td>windrose.db</td>") < listed.index("<td>beside.db</td>")
        assert "damaged.db" in listed
        assert "Left out" in listed
        found = shown("/results?q=heliotrope")
        address = re.findall(r'href="(/doc\?[^"]+)"', found)[0]
        assert "The heliotrope stands" in shown(address.replace("&amp;", "&"))
        assert "note.md" in shown("/collection?name=team")
        assert "calibrate" in shown("/results?q=calibrate+the+vane")
        graph = shown("/graph")
        assert "team/note.md" in graph  # and those of the first file
        assert "calibrate the vane.md" in graph
        activity = shown("/activity")
        assert "how high is the mast?" in activity
        assert '<td>read_file</td><td class="count">2</td>' in activity
        learned = shown("/discoveries")
        assert form_of(learned, "raw pulses")
        assert form_of(learned, "painted") == {}  # that file is only read
        assert "in beside.db" in learned
