"""Secrets in texts: what is recognised, what is not, and what becomes of them in discoveries."""

import json
import subprocess
import sys
from pathlib import Path
from secrets import token_urlsafe

import pytest
from secret_samples import EXAMPLE_PASSWORDS, MORE_SECRETS, SECRETS
from support import ROOT, call, failure

from kb.ingest.discoveries import all_discoveries
from kb.store.access_tokens import PREFIX
from kb.text.secrets import Secret, secrets_in
from kb.tools.session import Session

ORDINARY = ROOT / "fixtures" / "discoveries" / "ordinary.txt"
ALL_SECRETS = [*SECRETS, *MORE_SECRETS]


@pytest.mark.parametrize("text", [text for _, text in ALL_SECRETS], ids=[k for k, _ in ALL_SECRETS])
def test_a_secret_is_recognised(text: str) -> None:
    assert secrets_in(text)


def test_a_whole_key_block_is_one_secret_where_it_begins() -> None:
    (block,) = [text for kind, text in SECRETS if kind == "EC private key"]
    assert secrets_in(f"one\n{block}\n") == [Secret(3, "private key")]


@pytest.mark.parametrize(
    "text",
    [
        "A file that begins with `-----BEGIN OPENSSH PRIVATE KEY-----` is never stored.",
        "Look for -----BEGIN RSA PRIVATE KEY----- and -----END RSA PRIVATE KEY----- in the log.",
        "AccountKey=<your key>;EndpointSuffix=core.windows.net",
        "AccountKey=$STORAGE_KEY",
        "PublicKey = " + "aB3" * 14 + "=",
        "public_key: " + "aB3" * 14,
        "ssh key: AAAAB3NzaC1yc2EAAAADAQABAAABgQC7" + "aB3" * 20,
        "cache key = " + "0123456789abcdef" * 4,
        "-----BEGIN CERTIFICATE-----\n" + "aB3" * 20 + "\n-----END CERTIFICATE-----",
        "hooks.slack.com/services/ takes three parts",
        "awk '{ print $1$2 }' and $6$ in a book",
    ],
)
def test_what_only_speaks_of_a_key_is_none(text: str) -> None:
    assert secrets_in(text) == []


def test_what_looks_like_the_beginning_of_many_keys_takes_linear_time() -> None:
    code = (
        "import sys, time; from kb.text.secrets import secrets_in\n"
        "for unit in ('BEGIN PRIVATE KEY----', 'KEY=' + 'a' * 39, '$1$a', '-----END PRIVATE KEY',\n"
        "             'BEGIN PRIVATE KEY----' + 'a' * 32 + '\\n', 'AKCp' + 'a' * 60):\n"
        "    secrets_in(unit * 20_000)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("text", EXAMPLE_PASSWORDS)
def test_a_weak_password_in_an_assignment_is_recognised(text: str) -> None:
    assert [secret.line for secret in secrets_in(text)] == [1]


def test_a_token_of_a_server_of_ours_is_a_secret() -> None:
    token = PREFIX + token_urlsafe(32)
    assert secrets_in(f"one\nit is {token}.") == [Secret(2, "kb token")]
    assert secrets_in(f"see kb_{'a' * 20} and kb_{'b' * 50}") == []


def test_ordinary_sentences_hold_no_secret() -> None:
    sentences = ORDINARY.read_text(encoding="utf-8").splitlines()
    assert len(sentences) == 200
    assert [sentence for sentence in sentences if secrets_in(sentence)] == []


@pytest.mark.parametrize(
    "text",
    [
        "password=None",
        "password=self.password2",
        "password = hash(password2)",
        "password=<pass1>",
        "password=$PASSWORD1",
        "PASSWORD=${PASSWORD1:-x}",
        "password: {{ vault.db1 }}",
        "pwd=/home/user1",
        "password == stored1",
        "Password: 12 characters",
        "pass=51 fail=2",
        "compass: north-12",
    ],
)
def test_what_leads_to_a_password_is_none(text: str) -> None:
    assert secrets_in(text) == []


def test_secrets_are_given_by_line_and_never_shown() -> None:
    (token,) = [text for kind, text in SECRETS if kind == "GitHub token"]
    text = f"first\n{token} and {token}\nwithout\udcff one\npassword=hunter2 ü\n"
    assert secrets_in(text) == [Secret(2, "github token"), Secret(4, "password")]


def test_a_secret_is_refused_with_the_way_out_and_nothing_is_stored(kb: Session) -> None:
    error = failure(kb, "context_record", content="Staging takes password=hunter2 for now")
    assert error["code"] == "VALIDATION_ERROR"
    assert "kb record --allow-secrets" in error["error"]
    assert "hunter2" not in json.dumps(error)
    assert list(error["details"]["fieldErrors"]) == ["content"]
    error = failure(kb, "context_record", content="Staging has a login", source="pwd=hunter2")
    assert list(error["details"]["fieldErrors"]) == ["source"]
    with kb.database.read() as connection:
        assert all_discoveries(connection) == []
    assert call(kb, "context_record", content="Staging takes a password")["status"] == "recorded"


@pytest.mark.slow
def test_only_the_command_line_can_insist(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kb", "--db", str(tmp_path / "kb.db"), "record"]
    text = "Staging takes password=hunter2"
    refused = subprocess.run([*command, text], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--allow-secrets" in refused.stderr
    insisted = subprocess.run([*command, "--allow-secrets", text], capture_output=True, text=True)
    assert insisted.returncode == 0, insisted.stderr


@pytest.mark.slow
def test_the_detector_is_loaded_only_when_text_is_recorded() -> None:
    modules = "sys, kb.cli.main, kb.ingest.discoveries, kb.server.mcp"
    code = f"import {modules}; print('redact_secret' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
