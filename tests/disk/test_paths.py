"""Paths from clients: what is refused, what is readable, and that no race leads outside."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kb.disk.inside import (
    MAXIMUM_BYTES,
    _not_found,
    is_hidden_from_tools,
    read_beneath,
    read_inside,
    resolve_inside,
)
from kb.errors import FileNotFound, FileTooLarge, KbError, PermissionDenied

SECRET = b"secret"

READABLE = [
    "README.md",
    "./README.md",
    "docs/.environment.md",
    ".environment.md",
    ".gitignore",
    "src/.gitignore",
    ".github/workflows/test.yml",
    "environment.py",
    "src/env.py",
    "env/settings.py",
    "my.env.md",
    "gitlog.txt",
    "node_modules.md",
    "keys.py",
    "src/keyboard.key.md",
    "50% done.md",
    "100%25.md",
    "a b/c d.md",
    "..hidden.md",
    "a...b.md",
    "wait….md",
    "文档/说明。md",
    "カタカナ・ノート.md",
    "日付／時刻.md",
    "naïve café.md",
    "👩‍💻.md",
    "notes~",
    "notes: b.md",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with every file an attack may be after, inside it and around it."""
    root = tmp_path / "proj"
    root.mkdir()
    for path in READABLE:
        location = root / path
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_text("open")
    hidden = [*hidden_paths(), "secret.txt", "src/main.py"]
    for path in hidden:
        location = root / path
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_bytes(SECRET)
    (tmp_path / "proj_secret").mkdir()
    (tmp_path / "proj_secret" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "secret.txt").write_bytes(SECRET)
    for name, target in links(tmp_path).items():
        (root / name).symlink_to(target)
    return root


def links(outside: Path) -> dict[str, str]:
    return {
        "link.txt": "../secret.txt",
        "absolute.txt": str(outside / "secret.txt"),
        "sibling": "../proj_secret",
        "up": "..",
        "root": "/",
        "innocent.md": ".env",
        "history": ".git",
        "chain": "link.txt",
        "nowhere": "../gone.txt",
        "modules": "node_modules",
    }


def hidden_paths() -> list[str]:
    return [
        *(".env", ".env.local", ".env.production", ".env.example", ".envrc", ".env~", ".env-old"),
        *("src/.env", "a/.env/b.txt", ".ENV", ".Env.Local", ".ENVRC", "sub/.eNv.test"),
        *(".git/config", ".git/HEAD", ".Git/config2", ".GIT/x", "vendor/.git/config"),
        *("node_modules/x/index.js", "Node_Modules/y.js", "web/node_modules/z.js"),
        *("id_rsa", ".ssh/id_ed25519", "deploy/id_ecdsa", "ID_RSA2/../id_dsa"),
        *("server.pem", "certs/server.KEY", "a.p12", "b.pfx", "c.keystore", "d.jks", "e.ppk"),
        *(".npmrc", ".netrc", "_netrc", ".pypirc", ".pgpass", ".htpasswd", ".git-credentials"),
        *(".aws/credentials", ".gnupg/secring.gpg", "vault.kdbx"),
    ]


def climbs() -> list[str]:
    return [
        *("../secret.txt", "../../secret.txt", "../../../../../../etc/passwd", "..", "../"),
        *("src/../../secret.txt", "src/../secret.txt", "./../secret.txt", "src/..", "a/b/../../.."),
        *("../proj/secret.txt", "../proj_secret/secret.txt", "src/../../proj_secret/secret.txt"),
        *(
            ".. /secret.txt",
            " ../secret.txt",
            "../ secret.txt",
            ".../secret.txt",
            "..../secret.txt",
        ),
        *("src//..//..//secret.txt", "src/./.././../secret.txt", ". ./secret.txt"),
    ]


def absolutes() -> list[str]:
    return [
        *(
            "/etc/passwd",
            "//etc/passwd",
            "///etc/passwd",
            "/",
            "/proc/self/environ",
            " /etc/passwd",
        ),
        *(
            "C:/Windows/win.ini",
            "c:secret.txt",
            "C:\\Windows\\win.ini",
            "Z:/x",
            "\\\\server\\share",
        ),
        *("//server/share/x", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "\\etc\\passwd"),
        *(
            "~/.ssh/id_rsa",
            "~",
            "~root/x",
            "~/secret.txt",
            "file:///etc/passwd",
            "FILE:/etc/passwd",
        ),
        *("http://example.com/x", "smb://server/x"),
    ]


def encoded() -> list[str]:
    """The climbs and the hidden names, percent-encoded in every way that some reader undoes."""
    attempts = []
    for path in (
        "../secret.txt",
        "../../etc/passwd",
        "src/../../secret.txt",
        "/etc/passwd",
        ".env",
    ):
        dots, slashes = path.replace(".", "%2e"), path.replace("/", "%2f")
        everything = "".join(f"%{ord(letter):02x}" for letter in path)
        attempts += [dots, dots.upper(), everything, quote(everything), quote(quote(everything))]
        attempts += ["".join(f"%u{ord(letter):04x}" for letter in path)]
        attempts += [slashes, quote(slashes)] if "/" in path else []
    return [
        *attempts,
        *("..%2fsecret.txt", "..%5csecret.txt", "%2e./secret.txt", ".%2e/secret.txt"),
        *("..%c0%afsecret.txt", "%c0%ae%c0%ae/secret.txt", "..%255c..%255csecret.txt"),
        *("..%00/secret.txt", "secret.txt%00.md", "%00", "%0a.env", "%2eenv%00", "%2Egit/config"),
        *("..%ef%bc%8fsecret.txt", "%ef%bc%8e%ef%bc%8e/secret.txt", "%7e/secret.txt", "C%3a/x"),
    ]


def look_alikes() -> list[str]:
    dots = ["\uff0e", "\u2024", "\ufe52", "\u3002", "\uff61"]
    slashes = ["\uff0f", "\u2044", "\u2215", "\u29f8", "\uff3c", "\ufe68", "\u2216", "\u29f9"]
    return [
        *(f"{dot}{dot}/secret.txt" for dot in dots),
        *(f"..{slash}secret.txt" for slash in slashes),
        *(f"src{slash}..{slash}..{slash}secret.txt" for slash in slashes[:4]),
        *(f"{slash}etc{slash}passwd" for slash in slashes[:4]),
        *(f"{dot}env" for dot in dots),
        *(f"{dot}git/config" for dot in dots),
        *(
            "\u2025/secret.txt",
            "\u2026/secret.txt",
            "\uff0e\u2024/secret.txt",
            ".\u200b./secret.txt",
        ),
        *(
            ".\uff45\uff4e\uff56",
            ".e\u200bnv",
            ".\u200dgit/config",
            ".g\u200cit/config",
            "\ufeff.env",
        ),
        *(
            ".ｇｉｔ/config",
            "ｎｏｄｅ_ｍｏｄｕｌｅｓ/x.js",
            "\uff5e/x",
            "Ｃ：/x",
            ".env\ufe0f",
            ".𝐞𝐧𝐯",
        ),
        *("\u202e../secret.txt", "..\u2060/secret.txt"),
    ]


def malformed() -> list[str]:
    return [
        *("secret.txt\0", "secret.txt\0.md", "\0", "..\0/secret.txt", ".env\0.md", "src/\0/x"),
        *(
            "secret\n.txt",
            "secret.txt\r",
            "a\tb",
            "\x1b[2J",
            "\x7f",
            "a\x85b",
            "\x01",
            "\udc2e\udc2e/x",
        ),
        *("..\\secret.txt", "src\\..\\..\\secret.txt", "src\\main.py", "..\\/secret.txt", "a\\"),
        *(
            ".env.",
            ".env ",
            ".git./config",
            ".git /config",
            " .env",
            ".env::$DATA",
            ".git:x/config",
        ),
        *("src/.env/", ".env/", "./.env", ".//.env", "src/./../.env", "id_rsa.", "server.pem "),
        *("node_modules", ".git", "node_modules/", ".git/", "a/.git/../../b"),
    ]


ATTEMPTS = list(
    dict.fromkeys(
        [
            *climbs(),
            *absolutes(),
            *encoded(),
            *look_alikes(),
            *malformed(),
            *hidden_paths(),
            *links(Path("/nowhere")),
            *(
                "sibling/secret.txt",
                "up/secret.txt",
                "up/proj_secret/secret.txt",
                "root/etc/passwd",
            ),
            *("history/config", "modules/x/index.js", "up/proj/.env", "root/proc/self/environ"),
        ]
    )
)


def test_there_are_two_hundred_attempts() -> None:
    assert len(ATTEMPTS) >= 200


@pytest.mark.parametrize("path", ATTEMPTS, ids=ascii)
def test_an_escape_is_refused(project: Path, path: str) -> None:
    with pytest.raises(PermissionDenied) as caught:
        read_inside(project, path)
    assert caught.value.code == "PERMISSION_DENIED"
    assert caught.value.details["path"] == path
    assert caught.value.message in (
        "Absolute paths not allowed",
        "Path traversal not allowed",
        "Permission denied",
    )


@pytest.mark.parametrize("path", READABLE)
def test_an_ordinary_file_is_readable(project: Path, path: str) -> None:
    file = read_inside(project, path)
    assert file.data == b"open"
    assert file.path == path.removeprefix("./")
    assert file.modified > 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "Absolute paths not allowed"),
        ("C:\\x", "Absolute paths not allowed"),
        ("~/x", "Absolute paths not allowed"),
        ("../x", "Path traversal not allowed"),
        ("src/../../x", "Path traversal not allowed"),
        ("..\\x", "Path traversal not allowed"),
        ("%2e%2e/x", "Path traversal not allowed"),
        ("．．/x", "Path traversal not allowed"),
        (".env", "Permission denied"),
        (".git/config", "Permission denied"),
        ("link.txt", "Permission denied"),
    ],
)
def test_each_kind_of_escape_has_its_message(project: Path, path: str, message: str) -> None:
    with pytest.raises(PermissionDenied) as caught:
        resolve_inside(project, path)
    assert caught.value.message == message
    assert caught.value.as_result()["error"] == message


@pytest.mark.parametrize(
    "path", ["gone.md", "src/gone/x.py", "", ".", "src", "README.md/x", "a" * 5000]
)
def test_what_is_not_there_or_no_file_is_not_found(project: Path, path: str) -> None:
    with pytest.raises(FileNotFound) as caught:
        read_inside(project, path)
    assert caught.value.message == "File not found"
    assert caught.value.details["path"] == path


def test_near_names_are_suggested_but_no_hidden_ones(project: Path) -> None:
    with pytest.raises(FileNotFound) as caught:
        resolve_inside(project, "docs/environment.md")
    assert caught.value.details["suggestions"] == ["docs/.environment.md"]
    with pytest.raises(FileNotFound) as caught:
        resolve_inside(project, "server.pen")
    assert "server.pem" not in caught.value.details.get("suggestions", [])


def test_no_names_are_suggested_behind_a_link_that_came_meanwhile(
    project: Path, tmp_path: Path
) -> None:
    for number, folder in enumerate((project / ".git", tmp_path / "elsewhere")):
        folder.mkdir(exist_ok=True)
        (folder / "config.md").write_text("secret")
        (project / f"link{number}").symlink_to(folder)
        assert "suggestions" not in _not_found(str(project), f"link{number}/confgi.md").details


def test_links_inside_the_project_are_followed(project: Path) -> None:
    (project / "alias.md").symlink_to("docs/.environment.md")
    assert read_inside(project, "alias.md").path == "docs/.environment.md"


def test_a_link_to_itself_ends(project: Path) -> None:
    (project / "loop").symlink_to("loop")
    (project / "parent").symlink_to(".")
    with pytest.raises(FileNotFound):
        read_inside(project, "loop")
    assert read_inside(project, "parent/parent/README.md").path == "README.md"


def test_the_root_may_itself_be_a_link_and_have_a_hidden_name(tmp_path: Path) -> None:
    place = tmp_path / "node_modules" / "package"
    place.mkdir(parents=True)
    (place / "x.md").write_text("open")
    (tmp_path / "alias").symlink_to(place)
    assert read_inside(place, "x.md").path == "x.md"
    assert read_inside(tmp_path / "alias", "x.md").path == "x.md"


def test_large_files_are_refused_and_the_largest_allowed_is_read(project: Path) -> None:
    (project / "fits.bin").write_bytes(b"x" * MAXIMUM_BYTES)
    (project / "large.bin").write_bytes(b"x" * (MAXIMUM_BYTES + 1))
    assert len(read_inside(project, "fits.bin").data) == MAXIMUM_BYTES
    with pytest.raises(FileTooLarge) as caught:
        read_inside(project, "large.bin")
    assert caught.value.as_result() == {
        "error": "File too large",
        "code": "FILE_TOO_LARGE",
        "path": "large.bin",
        "size": MAXIMUM_BYTES + 1,
        "maximumSize": MAXIMUM_BYTES,
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no fifos here")
def test_a_fifo_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "pipe.md")
    with pytest.raises(FileNotFound):
        read_inside(project, "pipe.md")
    with pytest.raises(OSError, match="not a regular file"):
        read_beneath(project, ["pipe.md"], 10)


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="links are checked once here")
def test_a_folder_swapped_for_a_link_meanwhile_is_refused(project: Path) -> None:
    with pytest.raises(OSError):
        read_beneath(project, ["sibling", "secret.txt"], 10)
    with pytest.raises(OSError):
        read_beneath(project, ["link.txt"], 10)


def test_swapping_all_the_time_never_shows_what_is_outside(project: Path) -> None:
    target, spare, outside = project / "swap", project / "spare", project.parent / "proj_secret"
    spare.mkdir()
    (spare / "secret.txt").write_text("open")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                spare.rename(target)
                target.rename(spare)
                target.symlink_to(outside)
                target.unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(500):
            with contextlib.suppress(KbError):
                assert read_inside(project, "swap/secret.txt").data == b"open"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("path", hidden_paths())
def test_hidden_names_are_hidden_from_searches_too(path: str) -> None:
    assert is_hidden_from_tools(path)


@pytest.mark.parametrize("path", READABLE)
def test_other_names_are_not_hidden(path: str) -> None:
    assert not is_hidden_from_tools(path)


PIECES = st.sampled_from(
    [
        *(
            "..",
            ".",
            "/",
            "\\",
            "%2e",
            "%2f",
            "%",
            "~",
            "C:",
            ".env",
            ".git",
            "src",
            "secret.txt",
            "up",
        ),
        *(
            "root",
            "sibling",
            "link.txt",
            "．",
            "／",
            "\0",
            " ",
            "proj_secret",
            "README.md",
            "\u200b",
        ),
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.lists(PIECES, max_size=8).map("".join), st.text(max_size=30)))
def test_no_text_reads_what_is_outside_or_hidden(project: Path, path: str) -> None:
    try:
        file = read_inside(project, path)
    except KbError:
        return
    assert not is_hidden_from_tools(file.path)
    assert file.data == b"open" or file.path in ("secret.txt", "src/main.py")
