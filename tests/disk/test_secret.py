"""No secret ever comes into the file, whatever the globs say, and what an older kb let in goes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from secret_samples import mixed
from support import failure, git

from kb.disk.grep import grep
from kb.disk.inside import is_hidden_from_tools, resolve_inside
from kb.errors import PermissionDenied, UsageError
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.sources import folder as sources
from kb.tools.session import Session

MARK = "xyzzywort"  # in every secret, in no other text

PEM = f"-----BEGIN {{}}PRIVATE KEY-----\n{MARK}\n-----END {{}}PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

SECRET_NAMES = [
    *(".env", ".env.md", ".env-prod.md", ".env.local", "api/.env.production", ".env_old.txt"),
    *(".envrc", "deploy/prod.env", ".ENV.md", "old/.env/notes.md", ".env~", ".env.example"),
    *(".ssh/config", ".ssh/id_ed25519", ".ssh/notes.md", "home/.ssh/known_hosts.txt"),
    *(".aws/credentials", ".aws/config.md", ".gnupg/private.txt", ".azure/tokens.md"),
    *(".kube/config", ".config/gcloud/adc.json", ".config/gh/hosts.md", ".docker/config.json"),
    *("id_rsa", "id_rsa.txt", "ID_RSA.md", "keys/id_ed25519", "id_ecdsa.bak", "id_ed25519_sk.md"),
    *("key.pem", "key.pem.txt", "certs/server.key", "server.key.txt", "SERVER.KEY", "a.p8"),
    *("b.p12", "c.pfx", "d.ppk", "e.jks", "f.keystore", "g.kdbx", "h.keytab", "i.ovpn"),
    *(".netrc", "_netrc", ".npmrc", "web/.npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd"),
    *(".git-credentials", ".dockercfg", ".s3cfg", ".boto", ".vault-token", "main.tfstate"),
    *("secrets.yaml", "config/secrets.json", "credentials.json", "client_secret_1.json"),
    *(".cargo/credentials.toml", ".bash_history", ".psql_history", ".password-store/mail.md"),
    *("deploy_rsa", "keys/ci_ed25519", "secring.txt", "vault.psafe3", "export.1pux"),
    *("prod.tfvars", "prod.auto.tfvars.json", ".terraform.d/credentials.tfrc.json", ".dev.vars"),
    *("local.settings.json", "site.publishsettings", ".m2/settings.xml", "android/key.properties"),
    *(".gradle/gradle.properties", ".composer/auth.json", ".codex/auth.json", "kaggle.json"),
    *(".claude/.credentials.json", ".claude.json", ".secrets.toml", ".node_repl_history"),
    *(".vscode/sftp.json", "sftp-config.json", "ftp/recentservers.xml", ".msmtprc", "kubeconfig"),
    *("app-firebase-adminsdk-x1.json", "gha-creds-1a2b.json", ".config/rclone/notes.md"),
    *(".cloudflared/a.md", ".mozilla/x/logins.json", "bitwarden_export_2026.json"),
]
# Ordinary names; only the content says that it is a key.
PRIVATE_KEYS = {
    "deploy.md": PEM.format("RSA ", "RSA "),
    "notes/key.txt": PEM.format("", ""),
    "notes/openssh.md": PEM.format("OPENSSH ", "OPENSSH "),
    "encrypted.txt": "\ufeff\n\n" + PEM.format("ENCRYPTED ", "ENCRYPTED "),
    "ec.md": PEM.format("EC ", "EC "),
    "chain.txt": CERTIFICATE + PEM.format("", ""),
    "bag.txt": "Bag Attributes\n  friendlyName: x\n" + PEM.format("", ""),
    "gpg.md": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{MARK}\n",
    "putty.txt": f"PuTTY-User-Key-File-3: ssh-ed25519\n{MARK}\n",
    "age.txt": f"# created: 2026-01-01\n# public key: age1\nAGE-SECRET-KEY-1{MARK}\n",
}
OPEN = {
    ".environment.md": "",
    "id_rsa.pub": "ssh-rsa AAAA\n",
    "secrets.md": "# Secrets\nHow to keep them.\n",
    "keys.md": "# Keys\n\n    -----BEGIN PRIVATE KEY-----\n    AAAA\n",
    "my.env.md": "# The environment\n",
    "auth.json.md": "# auth.json\n",
    "using_rsa.md": "# RSA\n",
    "history.md": "# History\n",
    "terraform.tfvars.md": "# Variables\n",
    "src/keyboard.key.md": "# Keyboards\n",
    "certificate.txt": CERTIFICATE,
    "tokens.md": "# Tokens\nA token looks like `ghp_0123456789abcdefghijklmnopqrstuvwxyz`.\n",
}


def kb_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kb", *arguments], cwd=folder, capture_output=True, text=True
    )


def write_all(folder: Path) -> None:
    texts = {
        **dict.fromkeys(SECRET_NAMES, f"# Notes\n\npassword = {MARK}\n"),
        **PRIVATE_KEYS,
        **OPEN,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def bytes_of(database: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(database.parent.glob("kb.db*"))).lower()


WIDE = ["**", "*", ".*", ".*/**", "**/.*/**", "**/.*", ".*/.*", ".*/*/**", ".config/**"]


def test_there_are_more_than_sixty_secrets() -> None:
    assert len(set(SECRET_NAMES)) >= 60


@pytest.mark.parametrize(
    "include", [[], ["**"], WIDE, SECRET_NAMES], ids=["default", "all", "wide", "named"]
)
def test_nothing_of_a_secret_is_in_the_file_whatever_is_included(
    tmp_path: Path, include: list[str]
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    write_all(folder)
    globs = [argument for glob in include for argument in ("--include", glob)]
    done = kb_command(folder, "add", ".", "--no-embed", *globs)
    if include == SECRET_NAMES:
        assert done.returncode == 1
        assert not (folder / ".kb").exists()
        return
    assert done.returncode == 0, done.stderr
    content = bytes_of(folder / ".kb" / "kb.db")
    assert MARK.encode() not in content
    if include in ([], ["**"]):
        assert b"how to keep them" in content
        assert "never stored: ID_RSA.md" in done.stderr
    with contextlib.closing(sqlite3.connect(folder / ".kb" / "kb.db")) as connection:
        stored = {row[0] for row in connection.execute("SELECT path FROM documents")}
    assert not stored & {*SECRET_NAMES, *PRIVATE_KEYS}
    if include == WIDE:
        assert stored >= OPEN.keys()


def zipped(folder: Path, bundle: Path) -> None:
    with zipfile.ZipFile(bundle, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, f"docs/{file.relative_to(folder).as_posix()}")


def tarred(folder: Path, bundle: Path) -> None:
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(folder, "docs")


@pytest.mark.slow
def test_no_source_brings_a_secret_and_no_bundle_is_packed_with_one(tmp_path: Path) -> None:
    """From bundles, a repository, a manifest that lists them, and an archive."""
    docs = tmp_path / "docs"
    docs.mkdir()
    write_all(docs)
    zipped(docs, tmp_path / "a.zip")
    tarred(docs, tmp_path / "b.tar.gz")
    listed = tmp_path / "listed"
    listed.mkdir()
    write_all(listed)
    names = [*SECRET_NAMES, *PRIVATE_KEYS, *OPEN]
    (listed / "manifest.json").write_text(json.dumps({"sources": {"files": names}}))
    repository = tmp_path / "repository"
    repository.mkdir()
    write_all(repository)
    git(repository, "init", "-q")
    git(repository, "add", "-f", ".")
    git(repository, "commit", "-qm", "all")
    wide = [argument for glob in WIDE for argument in ("--include", glob)]
    for source, more in {
        "a.zip": wide,
        "b.tar.gz": wide,
        "listed": [],
        f"git+file://{repository}": wide,
        "docs": ["--kind", "archive"],
    }.items():
        done = kb_command(tmp_path, "add", source, "--no-embed", *more)
        assert done.returncode in (0, 1), done.stderr  # 1: some could not be stored
    content = bytes_of(tmp_path / ".kb" / "kb.db")
    assert MARK.encode() not in content
    assert b"how to keep them" in content
    with contextlib.closing(sqlite3.connect(tmp_path / ".kb" / "kb.db")) as connection:
        kept = dict(
            connection.execute(
                "SELECT name, count(*) FROM documents JOIN collections USING (collection_id)"
                " WHERE path LIKE '%secrets.md' GROUP BY name"
            )
        )
    assert len(kept) == 5, kept
    assert kb_command(tmp_path, "pack", "docs", "-o", "new.tar.gz", *wide).returncode == 0
    with tarfile.open(tmp_path / "new.tar.gz") as packed:
        for member in packed.getmembers():
            file = packed.extractfile(member)
            assert file is None or MARK.encode() not in file.read(), member.name


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_intake_and_file_tools_have_one_list(tmp_path: Path, name: str) -> None:
    assert is_hidden_from_tools(name)
    with pytest.raises(PermissionDenied):
        resolve_inside(tmp_path, name)


@pytest.mark.parametrize("name", PRIVATE_KEYS)
def test_a_private_key_under_any_name_is_not_read(kb: Session, tmp_path: Path, name: str) -> None:
    write_all(tmp_path)
    error = failure(kb, "read_file", path=name)
    assert error["code"] == "PERMISSION_DENIED"
    assert error["reason"] == "this is a private key"


@pytest.mark.parametrize("name", OPEN)
def test_what_only_looks_like_a_secret_is_open_to_both(tmp_path: Path, name: str) -> None:
    write_all(tmp_path)
    assert not is_hidden_from_tools(name)
    assert resolve_inside(tmp_path, name).is_file()
    (file,) = sources.walk(tmp_path / name, report=lambda *problem: None)
    assert sources.read(file).text == OPEN[name]


def test_grep_finds_no_secret_by_name_or_by_content(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert grep(tmp_path, MARK, "", True, 100).matches == []
    assert grep(tmp_path, MARK, "", True, 100).total_matches == 0
    assert grep(tmp_path, "PRIVATE KEY", "", True, 100).total_matches == 1  # in keys.md


def test_no_number_tells_whether_a_private_key_matches(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(PEM.format("", ""))
    for pattern in (MARK, "no such text"):
        found = grep(tmp_path, pattern, "", True, 100)
        assert (found.total_matches, found.files_searched) == (0, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".env.md", "its name is that of a secret"),
        ("id_rsa.txt", "its name is that of a secret"),
        (".ssh", "it lies in a folder of credentials"),
        (".ssh/notes.md", "it lies in a folder of credentials"),
        ("deploy.md", "it is a private key"),
    ],
)
def test_adding_a_secret_by_its_name_is_refused_with_the_reason(
    kb: Session, tmp_path: Path, name: str, reason: str
) -> None:
    write_all(tmp_path)
    with pytest.raises(UsageError, match=f"secrets are never stored: {reason}"):
        register(kb.database, str(tmp_path / name))
    with kb.database.read() as connection:
        assert connection.rows("collections") == []


def test_a_source_that_has_become_a_folder_of_credentials_is_refused(
    kb: Session, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Wind\n")
    collection = register(kb.database, str(folder))
    sync_collection(kb.database, collection)
    folder.rename(tmp_path / ".ssh")
    folder.symlink_to(tmp_path / ".ssh")
    with pytest.raises(sources.SecretFile, match="is never stored: it lies in a folder"):
        sync_collection(kb.database, collection)


def test_secrets_that_an_older_kb_stored_are_erased_by_the_next_sync(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("id_rsa.txt", "deploy.md", "a.md"):
        text = "# Open\n\nNothing to hide here, walrus.\n" if name == "a.md" else ""
        (folder / name).write_text(text or f"# Key\n\n{MARK} is the password\n")
    (folder / "deploy.md").write_text(PRIVATE_KEYS["deploy.md"])
    collection = register(kb.database, str(folder))
    with monkeypatch.context() as older:
        older.setattr(sources, "is_secret", lambda path: False)
        older.setattr("kb.ingest.sync.is_secret", lambda path: False)
        older.setattr(sources, "begins_as_private_key", lambda text: False)
        assert sync_collection(kb.database, collection).added == 3
    embed_pending(kb.model)
    assert MARK.encode() in bytes_of(kb.database.path)
    with kb.database.read() as connection:
        vectors = connection.apsw.execute("SELECT count(*) FROM vectors").fetchall()[0][0]

    report = sync_collection(kb.database, collection)
    assert (report.removed, report.unchanged, report.total, report.errors) == (2, 1, 1, [])
    assert [notice["message"] for notice in report.notices] == [
        "removed, since it is never stored: id_rsa.txt (secret by name, or a private key)",
        "removed, since it is never stored: deploy.md (secret by name, or a private key)",
        "never stored: deploy.md, id_rsa.txt (secret by name, or a private key)",
    ]
    with kb.database.read() as connection:

        def count(sql: str) -> int:
            return int(connection.apsw.execute(sql).fetchall()[0][0])

        assert count("SELECT count(*) FROM documents") == 1
        assert count("SELECT count(*) FROM vectors") == vectors - 2
        assert count("SELECT count(*) FROM chunks") == 1
        for word, hits in ((MARK, 0), ("walrus", 1)):
            assert count(f"SELECT count(*) FROM keyword_index('{word}')") == hits
        assert count(f"SELECT count(*) FROM vocabulary WHERE word = '{MARK}'") == 0
        assert count("SELECT count(*) FROM vocabulary WHERE word = 'walrus'") == 1
    assert MARK.encode() not in bytes_of(kb.database.path)
    assert sync_collection(kb.database, collection).removed == 0


def test_a_collection_of_nothing_but_secrets_is_emptied_without_being_asked(
    kb: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "id_rsa.md").write_text(MARK)
    collection = register(kb.database, str(tmp_path))
    with monkeypatch.context() as older:
        older.setattr(sources, "is_secret", lambda path: False)
        older.setattr("kb.ingest.sync.is_secret", lambda path: False)
        assert sync_collection(kb.database, collection).added == 1
    assert sync_collection(kb.database, collection).total == 0
    assert MARK.encode() not in bytes_of(kb.database.path)


def test_a_document_that_becomes_a_private_key_is_erased(kb: Session, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Here the key will stand\n")
    collection = register(kb.database, str(tmp_path))
    sync_collection(kb.database, collection)
    (tmp_path / "a.md").write_text(PRIVATE_KEYS["ec.md"])
    report = sync_collection(kb.database, collection)
    assert (report.removed, report.total) == (1, 0)


def test_a_token_in_a_document_is_stored_and_reported_with_its_line(
    kb: Session, folder: Path
) -> None:
    (folder / "a.md").write_text(f"# How to\n\nSet this: ghp_{mixed(36)}\n")
    (folder / "b.md").write_text("# How to\n\nSet this: ghp_YOUR_TOKEN\n")
    report = sync_collection(kb.database, register(kb.database, str(folder)))
    assert report.added == 2
    assert report.notices == [
        {
            "path": "a.md",
            "message": "stored, though it seems to hold a secret: line 3 (github token)",
        }
    ]
