"""Tokens of a file: whom they name."""

import pytest

from kb.errors import UsageError
from kb.results.roles import READ
from kb.store.access_tokens import LONGEST_NAME, add_token, all_tokens, find_token
from kb.tools.session import Session


@pytest.mark.parametrize(
    "name", ["", " ", "anna b", "anna\n", "anna\x1b[2J", "anna\u202e", "a" * (LONGEST_NAME + 1)]
)
def test_a_name_that_names_nobody_is_refused(kb: Session, name: str) -> None:
    with kb.database.write() as connection, pytest.raises(UsageError, match="names nobody"):
        add_token(connection, name, READ)
    with kb.database.read() as connection:
        assert all_tokens(connection) == []


@pytest.mark.parametrize("name", ["anna", "ci@build-7", "Ἄννα", "a" * LONGEST_NAME])
def test_a_name_has_one_token(kb: Session, name: str) -> None:
    with kb.database.write() as connection:
        token = add_token(connection, name, READ)
        other = add_token(connection, "other", READ)
        with pytest.raises(UsageError, match="has a token already"):
            add_token(connection, name, READ)
    with kb.database.read() as connection:
        names = [
            found and found.name
            for found in (find_token(connection, t) for t in (token, other, "x"))
        ]
    assert names == [name, "other", None]
