"""`kb token` on the command line, and that tokens are nowhere but with their owners."""

import re
import sqlite3
from pathlib import Path

from support import Run

from kb.store.access_tokens import find_token, has_tokens
from kb.store.database import Database


def test_a_token_is_printed_once_and_stands_nowhere_in_the_file(run: Run, project: Path) -> None:
    made = run("token", "add", "anna", "--role", "write")
    token = made.out.strip()
    assert re.fullmatch(r"kb_[\w-]{43}", token)
    assert "only time" in made.errors
    file = project / ".kb" / "kb.db"
    assert token.encode() not in file.read_bytes()
    assert token[3:].encode() not in file.read_bytes()
    with Database(file) as database, database.read() as connection:
        found = find_token(connection, token)
        assert found is not None
        assert (found.name, found.role) == ("anna", "write")
        assert find_token(connection, token[:-1]) is None


def test_one_name_has_one_valid_token(run: Run) -> None:
    first = run("token", "add", "anna", "--quiet")
    assert first.errors == ""
    refused = run("token", "add", "anna")
    assert refused.code == 2
    assert "kb token revoke anna" in refused.errors
    assert run("token", "revoke", "anna").code == 0
    again = run("token", "add", "anna", "--limit", "30", "--days", "7", "--json").json
    assert again["token"] != first.out.strip()
    listed = run("token", "list", "--json").json["tokens"]
    assert [(row["name"], row["state"]) for row in listed] == [
        ("anna", "valid"),
        ("anna", "revoked"),
    ]
    assert listed[0]["requestsPerMinute"] == 30
    assert listed[0]["role"] == "read"


def test_a_token_that_has_expired_is_none(run: Run, project: Path) -> None:
    token = run("token", "add", "anna", "--days", "1", "--quiet").out.strip()
    connection = sqlite3.connect(project / ".kb" / "kb.db")
    connection.execute("UPDATE tokens SET expires_at = '2020-01-01T00:00:00Z'")
    connection.commit()
    connection.close()
    with Database(project / ".kb" / "kb.db") as database, database.read() as reading:
        assert find_token(reading, token) is None
        assert has_tokens(reading)
    assert run("token", "list", "--json").json["tokens"][0]["state"] == "expired"
    assert run("token", "add", "anna").code == 0  # the name is free again
    assert run("token", "forget").out == "forgotten: 1\n"


def test_whose_token_is_revoked_must_have_one(run: Run) -> None:
    run("token", "add", "anna")
    refused = run("token", "revoke", "ana")
    assert refused.code == 1
    assert "Near: anna" in refused.errors
    for words in (("add",), ("revoke",), ("list", "anna"), ("add", "a b"), ("add", "a", "b")):
        assert run("token", *words).code == 2
    assert run("token", "list").lines[0].startswith("anna\tread\tvalid")


def test_when_the_last_is_forgotten_the_file_asks_for_none(run: Run) -> None:
    assert run("token", "list").code == 1
    run("token", "add", "anna")
    assert run("token", "forget").errors == ""
    run("token", "revoke", "anna")
    assert "no tokens any more" in run("token", "forget").errors


def test_a_copy_for_others_has_no_tokens_and_one_for_oneself_has(filled: Run) -> None:
    token = filled("token", "add", "anna", "--quiet").out.strip()
    for options, is_there in (((), True), (("--share",), False)):
        name = f"copy{len(options)}.db"
        assert filled("copy", name, *options).code == 0
        with Database(Path(name)) as database, database.read() as connection:
            assert (find_token(connection, token) is not None) == is_there
            assert has_tokens(connection) == is_there
        assert (b"anna" in Path(name).read_bytes()) == is_there


def test_status_and_doctor_count_tokens(filled: Run) -> None:
    assert "tokens" not in filled("status", "--json").json
    filled("token", "add", "anna")
    filled("token", "add", "bob")
    filled("token", "revoke", "bob")
    status = filled("status")
    assert "tokens: 1 valid, 1 revoked" in status.out
    found = filled("doctor", "--json").json["findings"]
    assert [one["message"] for one in found if one["check"] == "tokens"] == ["1 valid"]
