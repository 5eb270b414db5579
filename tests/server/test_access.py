"""What a request has to show, asked of the guard itself, without a server."""

import socket
from collections.abc import Sequence

import anyio
import pytest
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from kb.errors import UsageError
from kb.server.access import Access, Guard, is_loopback, make_access, shown_tokens
from kb.server.http import DEFAULT_HOST, DEFAULT_PORT, parse_address

TOKEN = "a-secret-of-twenty-three"
HERE = ("host", "localhost:8000")
Headers = Sequence[tuple[str, str]]


def scope_of(path: str, headers: Headers) -> Scope:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": raw,
        "client": ("127.0.0.1", 1),
    }


def ask(
    *headers: tuple[str, str], path: str = "/", access: Access | None = None
) -> tuple[int, dict[str, str], str]:
    """The status, headers and body with which a guard answers; what it lets through is 200."""
    answer: list[Message] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["path"])(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        answer.append(message)

    guard = Guard(application, access or make_access("127.0.0.1", ""))
    anyio.run(guard, scope_of(path, headers), receive, send)
    told = {name.decode(): value.decode() for name, value in answer[0]["headers"]}
    return answer[0]["status"], told, answer[1]["body"].decode()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "[::1]"]
)
def test_a_server_of_this_machine_has_its_names(host: str) -> None:
    assert make_access("127.0.0.1", "").may_be_called(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "10.0.0.1", "[fe80::1]:80", "localhost.evil.example", "127.0.0.2"]
)
def test_a_server_of_this_machine_has_no_other_name(host: str) -> None:
    assert not make_access("127.0.0.1", "").may_be_called(host)


@pytest.mark.parametrize(
    ("host", "is_name"),
    [
        *(("10.0.0.1:80", True), ("[fe80::1]:80", True), ("kb.example", True), ("Localhost", True)),
        *((socket.gethostname(), True), ("evil.example", False), ("", False)),
    ],
)
def test_a_server_for_others_has_any_address_and_its_own_names(host: str, is_name: bool) -> None:
    assert make_access("0.0.0.0", TOKEN, ["KB.example"]).may_be_called(host) is is_name


@pytest.mark.parametrize(
    ("host", "token", "why"),
    [
        ("0.0.0.0", "", "a token is needed"),
        ("kb.example", "", "a token is needed"),
        ("0.0.0.0", "short", "at least 16"),
        ("127.0.0.1", "short", "at least 16"),
        ("127.0.0.1", "a-secret-of-twénty-three", "ASCII"),
        ("127.0.0.1", "a-secret-of\x7f-twenty-three", "printable"),
        ("127.0.0.1", f" {TOKEN}", "blanks"),
        ("127.0.0.1", "a secret of twenty three", "blanks"),
    ],
)
def test_a_poor_token_is_refused_and_none_only_on_this_machine(
    host: str, token: str, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        make_access(host, token)


def test_a_token_is_asked_for_beyond_this_machine_and_where_there_is_one() -> None:
    assert not make_access("127.0.0.1", "").asks
    assert make_access("127.0.0.1", TOKEN).asks
    assert make_access("0.0.0.0", "", has_tokens=True).asks
    assert make_access("127.0.0.1", TOKEN).is_token(TOKEN)
    made = make_access("127.0.0.1", "")
    assert len(made.token) > 30
    assert made.token != make_access("127.0.0.1", "").token
    assert (made.is_token(""), made.is_token(made.token)) == (False, True)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_an_address_of_this_machine_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "kb.example", ""])
def test_an_address_that_others_reach_is_known(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([HERE], 200),
        ([], 421),
        ([("host", "evil.example")], 421),
        ([HERE, HERE], 421),
        ([HERE, ("origin", "http://localhost:8000")], 200),
        ([HERE, ("origin", "http://LocalHost:8000")], 200),
        ([HERE, ("origin", "http://localhost:8001")], 403),
        ([HERE, ("origin", "https://evil.example")], 403),
        ([HERE, ("origin", "null")], 403),
        ([HERE, ("origin", "")], 403),
        ([HERE, ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")], 200),
        ([HERE, ("sec-fetch-site", "none")], 200),
        ([HERE, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200),
        ([HERE, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403),
        ([HERE, ("sec-fetch-site", "same-site")], 403),
        ([HERE, ("content-length", "2")], 200),
        ([HERE, ("transfer-encoding", "chunked")], 200),
        ([HERE, ("content-length", "2"), ("transfer-encoding", "chunked")], 400),
    ],
)
def test_a_request_comes_from_where_it_should(headers: Headers, status: int) -> None:
    assert ask(*headers)[0] == status


def test_a_page_that_is_allowed_reaches_the_protocol_alone() -> None:
    access = make_access("127.0.0.1", "", origins=["https://Tools.example"])
    page = (HERE, ("origin", "https://tools.example"), ("sec-fetch-site", "cross-site"))
    status, told, _ = ask(*page, path="/mcp", access=access)
    assert (status, told["access-control-allow-origin"]) == (200, "https://tools.example")
    assert ask(*page, path="/", access=access)[0] == 403
    other = (HERE, ("origin", "https://other.example"))
    assert ask(*other, path="/mcp", access=access)[0] == 403
    own = (HERE, ("origin", "http://localhost:8000"))
    assert not any(name.startswith("access-control") for name in ask(*own, access=access)[1])


@pytest.mark.parametrize(
    "origin", ["*", "null", "tools.example", "https://tools.example/", "file:///x", "https://a b"]
)
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match="is not an origin"):
        make_access("127.0.0.1", "", origins=[origin])


def test_paths_of_the_protocol() -> None:
    assert ask(HERE, path="/mcp/")[2] == "/mcp"
    assert ask(HERE, path="/other/")[2] == "/other/"
    assert ask(HERE, path="/.well-known/oauth-protected-resource")[0] == 404
    assert ask(("host", "evil.example"), path="/mcp")[2].startswith('{"jsonrpc":"2.0"')
    assert ask(("host", "evil.example"), path="/")[2].startswith("this server is not called")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[::1]:8000", ("::1", 8000)),
        ("8000", (DEFAULT_HOST, 8000)),
        (":65535", (DEFAULT_HOST, 65535)),
        ("kb.example", ("kb.example", DEFAULT_PORT)),
    ],
)
def test_an_address_to_serve_at_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["x:65536", "x:-1", "x:http", "x:\u0663", "x:\u00b2", "99999"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("headers", "tokens"),
    [
        ([], []),
        ([("authorization", f"Bearer {TOKEN}")], [TOKEN]),
        ([("authorization", f"bearer  {TOKEN} ")], [TOKEN]),
        ([("authorization", f"Basic {TOKEN}")], []),
        ([("authorization", TOKEN)], []),
        ([("cookie", f"kb_token={TOKEN}")], [TOKEN]),
        ([("cookie", f"other={TOKEN}")], []),
        ([("authorization", "Basic x"), ("cookie", f"kb_token={TOKEN}")], []),
        ([("authorization", "Bearer x"), ("cookie", f"kb_token={TOKEN}")], ["x"]),
    ],
)
def test_a_token_is_shown_by_a_header_else_by_a_cookie(headers: Headers, tokens: list[str]) -> None:
    assert shown_tokens(HTTPConnection(scope_of("/", headers))) == tokens
