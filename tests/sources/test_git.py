"""Git repositories: from an address to searched, changed and synced again."""

import getpass
import http.server
import os
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from destinations import SSHD, ssh_server
from support import call, git, skip_without_git

from kb.errors import SourceError, UsageError
from kb.ingest.report import SyncReport
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.sources.address import git_address
from kb.sources.git import complaint
from kb.tools.session import Session

PAGES = {
    "README.md": "# Stones\n\nA handbook of stones.\n",
    "docs/quartz.md": "# Quartz\n\nThe quartz crystal.\n",
    "docs/felspar.md": "# Felspar\n\nThe felspar lath.\n",
    "src/tool.py": "print('no document')\n",
}


@pytest.fixture(autouse=True)
def _git() -> None:
    skip_without_git()


def commit(folder: Path, pages: dict[str, str | None]) -> str:
    for path, text in pages.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a change")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "stones.git"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowFilter", "true")
    commit(folder, dict(PAGES))
    return folder


class Backend(http.server.BaseHTTPRequestHandler):
    """git's own http backend behind a server of one test."""

    root: Path
    received: list[tuple[str, bytes]]

    def do_GET(self) -> None:
        self._run(b"")

    def do_POST(self) -> None:
        self._run(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _run(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        self.received.append((path, body))
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(repository: Path) -> Iterator[tuple[str, type[Backend]]]:
    handler = type("Handler", (Backend,), {"root": repository.parent, "received": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"git+http://127.0.0.1:{server.server_port}/stones.git/.git", handler
        server.shutdown()
        thread.join()


def add(kb: Session, source: str, **options: object) -> SyncReport:
    registration = register(kb.database, source, name="stones", **options)  # type: ignore[arg-type]
    return sync_collection(kb.database, registration)


def sync(kb: Session, **options: bool) -> SyncReport:
    with kb.database.read() as connection:
        row = kb.names.collection(connection, "stones")
    return sync_collection(kb.database, row, **options)


def found(kb: Session, query: str) -> list[str]:
    return [row["documentId"] for row in call(kb, "documents_search", query=query)["results"]]


def version(kb: Session) -> str:
    (row,) = call(kb, "documents_list_collections")["collections"]
    return str(row["version"])


def test_a_repository_is_searched_changed_and_synced_again(kb: Session, repository: Path) -> None:
    report = add(kb, f"git+file://{repository}")
    assert (report.added, report.errors) == (3, [])
    assert found(kb, "quartz")[0] == "docs/quartz.md"
    assert version(kb) == git(repository, "rev-parse", "HEAD")
    # Of the same length, and perhaps of the same second.
    last = commit(
        repository, {"docs/quartz.md": "# Quartz\n\nThe marble slabs..\n", "README.md": None}
    )
    report = sync(kb)
    assert (report.updated, report.unchanged, report.removed) == (1, 1, 1)
    assert found(kb, "marble")[0] == "docs/quartz.md"
    assert version(kb) == last
    assert sync(kb).unchanged == 2


def test_over_http_only_documents_and_then_only_changes_are_fetched(
    kb: Session, repository: Path, served: tuple[str, type[Backend]]
) -> None:
    source, handler = served
    commit(repository, {f"docs/{number}.md": f"# Page {number}\n" for number in range(5)})
    assert add(kb, source).added == 8
    blobs = {
        path: git(repository, "rev-parse", f"HEAD:{path}")
        for path in ("docs/quartz.md", "docs/1.md", "src/tool.py")
    }
    asked = b"".join(body for _, body in handler.received)
    assert b"filter blob:none" in asked
    assert b"deepen 1" in asked
    assert [blobs[path].encode() in asked for path in blobs] == [True, True, False]
    handler.received.clear()
    commit(repository, {"docs/1.md": "# Page of pyrite\n"})
    assert (sync(kb).updated, found(kb, "pyrite")[0]) == (1, "docs/1.md")
    asked = b"".join(body for _, body in handler.received)
    assert blobs["docs/quartz.md"].encode() not in asked
    assert git(repository, "rev-parse", "HEAD:docs/1.md").encode() in asked


def test_without_what_was_kept_the_next_sync_finds_the_same(
    kb: Session, repository: Path, tmp_path: Path
) -> None:
    add(kb, f"git+file://{repository}")
    shutil.rmtree(tmp_path / "home" / ".cache")
    report = sync(kb, force=True)
    assert (report.unchanged, report.updated, report.added) == (3, 0, 0)


@pytest.mark.parametrize("form", ["branch", "v1", "commit"])
def test_a_branch_a_tag_or_a_commit_may_be_named(kb: Session, repository: Path, form: str) -> None:
    git(repository, "switch", "--quiet", "--create", "branch")
    first = commit(repository, {"docs/topaz.md": "# Topaz\n\nThe topaz.\n"})
    git(repository, "tag", "--annotate", "v1", "--message", "the first")
    git(repository, "switch", "--quiet", "main")
    ref = first if form == "commit" else form
    assert add(kb, f"git+file://{repository}#{ref}").added == 4
    assert (found(kb, "topaz")[0], version(kb)) == ("docs/topaz.md", first)


def test_a_folder_of_the_repository_may_be_named(kb: Session, repository: Path) -> None:
    assert add(kb, f"git+file://{repository}?path=docs/").added == 2
    assert found(kb, "quartz")[0] == "quartz.md"


def test_a_glob_names_other_files(kb: Session, repository: Path) -> None:
    assert add(kb, f"git+file://{repository}", include=["src/*.py"]).added == 1


def test_nothing_of_a_repository_runs_or_leads_outside(
    kb: Session, repository: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {ran}")
    (repository / "link.md").symlink_to("/etc/passwd")
    (repository / "folder").symlink_to("/etc")
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    commit(inner, {"inner.md": "# Inner\n"})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", str(inner), "sub")
    commit(repository, {".gitattributes": "*.md filter=evil\n", ".env.md": "SECRET=1\n"})
    for name in ("post-checkout", "reference-transaction", "post-merge"):
        hook = repository / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    report = add(kb, f"git+file://{repository}")
    assert (report.added, report.errors) == (3, [])
    assert not ran.exists()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("git+https://-oProxyCommand=x/y", "hyphen"),
        ("git+ssh://-oProxyCommand=touch%20x/y", "hyphen"),
        ("git+ssh://%2DoProxyCommand=x/y", "hyphen"),
        ("git+ssh://-oX@host/y", "hyphen"),
        ("git+ext://sh -c touch/x", "blanks"),
        ("git+ext://sh%20-c/x", "there are git"),
        ("git+https://host/x#--upload-pack=touch", "branch, tag or commit"),
        ("git+https://host/x#a..b", "branch, tag or commit"),
        ("git+https://host/x#a:refs/heads/b", "branch, tag or commit"),
        ("git+https://host/x#a%0Ab", "branch, tag or commit"),
        ("git+https://host/x\n#a", "control"),
        ("git+https://host/x?path=../y", "leads out"),
        ("git+https://host/x?manifest=a/../../y", "leads out"),
        ("git+https://host/x?depth=3", "not one of its parameters"),
        ("git+https://host", "names no repository"),
        ("git+https://host/x#\udce4", "bytes that are not text"),
        ("git+file:docs", "the whole path"),
        ("git+https:///x", "names no host"),
        ("git+file://host/x", "no host"),
        ("git+https://host:port/x", "[Pp]ort"),
        ("git+https://[::1/x", "Invalid"),
        ("git+https://user:password@host/x", "password or token"),
        ("git+https://ghp_abcdefghijklmnopqrstuvwxyz0123456789@host/x", "password or token"),
    ],
)
def test_a_malformed_or_dangerous_address_is_refused(
    kb: Session, tmp_path: Path, source: str, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        add(kb, source)
    assert not (tmp_path / "home" / ".cache").exists()


@pytest.mark.parametrize(
    ("source", "url", "name"),
    [
        ("git+https://Host.org/a/b.git", "https://host.org/a/b.git", "b"),
        ("GIT+SSH://git@host.org:22/a/b", "ssh://git@host.org:22/a/b", "b"),
        ("git+https://me@host.org/a/b?path=docs/guide", "https://me@host.org/a/b", "guide"),
        ("git+file:///srv/a%20b.git", "file:///srv/a%20b.git", "a b"),
        ("git+https://[::1]:8443/b", "https://[::1]:8443/b", "b"),
    ],
)
def test_an_address_has_one_form(source: str, url: str, name: str) -> None:
    address = git_address(source)
    assert (address.url, address.name) == (url, name)
    assert git_address(address.stored) == address


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("/nothing", "not appear to be a git repository|not found|does not exist"),
        ("#nothing", "couldn't find remote ref"),
        ("?path=nothing", 'no folder "nothing/"'),
        ("?manifest=nothing.json", 'no file "nothing.json"'),
    ],
)
def test_what_cannot_be_fetched_is_told_and_nothing_is_added(
    kb: Session, repository: Path, ending: str, why: str
) -> None:
    with pytest.raises(SourceError, match=why):
        add(kb, f"git+file://{repository}{ending}")
    assert call(kb, "documents_list_collections")["collections"] == []


def test_a_repository_that_is_gone_keeps_what_is_stored(kb: Session, repository: Path) -> None:
    add(kb, f"git+file://{repository}")
    repository.rename(repository.with_name("away"))
    with pytest.raises(SourceError, match="cannot be fetched"):
        sync(kb)
    assert found(kb, "quartz")[0] == "docs/quartz.md"


def test_nobody_is_asked_for_a_password(kb: Session, tmp_path: Path) -> None:
    class Closed(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(SourceError, match="git has no credentials for it"):
            add(kb, f"git+http://127.0.0.1:{server.server_port}/x")
        server.shutdown()
        thread.join()


def test_a_redirect_leads_to_no_other_protocol(kb: Session) -> None:
    reached: list[str] = []

    class Other(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            reached.append("another protocol")

    class Leading(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.append("http")
            self.send_response(302)
            self.send_header("Location", f"https://127.0.0.1:{other.server_address[1]}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Other) as other,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Leading) as leading,
    ):
        threads = [threading.Thread(target=one.serve_forever) for one in (other, leading)]
        for thread in threads:
            thread.start()
        try:
            with pytest.raises(SourceError, match="cannot be fetched"):
                add(kb, f"git+http://127.0.0.1:{leading.server_port}/x")
        finally:
            for server in (other, leading):
                server.shutdown()
            for thread in threads:
                thread.join()
    assert set(reached) == {"http"}


def test_a_server_whose_branches_never_end_is_given_up(
    kb: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = b"a" * 40 + b" refs/heads/" + b"b" * 50 + b"\n"
    line = f"{len(branch) + 4:04x}".encode() + branch

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            self.wfile.write(b"001e# service=git-upload-pack\n0000")
            try:
                while True:
                    self.wfile.write(line * 10_000)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr("kb.sources.git.MOST_MEMORY_KIB", 200_000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(SourceError, match="cannot be fetched"):
            add(kb, f"git+http://127.0.0.1:{server.server_port}/x")
        server.shutdown()
        thread.join()


def test_a_repository_that_is_too_large_is_given_up(
    kb: Session, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.sources.bundle.MOST_BYTES", 50)
    with pytest.raises(SourceError, match="unpacks to more than"):
        add(kb, f"git+file://{repository}")


def test_a_file_that_is_too_large_is_told(
    kb: Session, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, {"docs/large.md": "x" * 21_000_000})
    report = add(kb, f"git+file://{repository}")
    assert report.added == 3
    assert [(one["path"], "more than the limit" in one["message"]) for one in report.errors] == [
        ("docs/large.md", True)
    ]


@pytest.mark.slow
@pytest.mark.skipif(SSHD is None, reason="needs an SSH server: Debian's openssh-server")
def test_a_repository_is_fetched_over_ssh(
    kb: Session, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ssh_server(tmp_path / "ssh") as (port, home):
        known = f"-o UserKnownHostsFile={home}/.ssh/known_hosts"
        monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F none {known} -o BatchMode=yes")
        source = f"git+ssh://{getpass.getuser()}@127.0.0.1:{port}{repository}/.git"
        with pytest.raises(SourceError, match="Permission denied"):
            add(kb, source)
        with_key = f"ssh -F none {known} -i {tmp_path}/ssh/key -o BatchMode=yes"
        monkeypatch.setenv("GIT_SSH_COMMAND", with_key)
        assert add(kb, source).added == 3
        commit(repository, {"docs/quartz.md": "# Quartz\n\nThe heliotrope crystal.\n"})
        assert (sync(kb).updated, found(kb, "heliotrope")) == (1, ["docs/quartz.md"])
        (home / ".ssh" / "known_hosts").write_text("")  # a server that ssh does not know
        commit(repository, {"docs/new.md": "# New\n\nA new page.\n"})
        with pytest.raises(SourceError, match="log in once by hand"):
            sync(kb)
        assert found(kb, "heliotrope") == ["docs/quartz.md"]


def test_a_repository_of_somebody_else_is_told_with_the_way_out() -> None:
    said = b"fatal: detected dubious ownership in repository at '/srv/stones/.git'\nTo add an\n"
    assert "safe.directory '/srv/stones/.git'` trusts it" in complaint(said, 128)


def test_git_asks_nobody_and_uses_the_one_protocol_that_was_named(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a git of our own, which writes down with what it was called."""
    program, noted = tmp_path / "bin" / "git", tmp_path / "noted"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nenv >> {noted}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("GIT_TERMINAL_PROMPT", "GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL"):
        monkeypatch.setenv(name, "of the user")
    with pytest.raises(SourceError):
        sync_collection(kb.database, register(kb.database, "git+https://example.com/stones.git"))
    lines = set(noted.read_text().splitlines())
    assert {
        *("GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=https"),
    } <= lines
    assert not any(line.endswith("=of the user") for line in lines)
