"""JSON of others: within its bounds a value, beyond them a clause that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kb.text.json_text import DEEPEST, MAX_VALUES, JsonError, parse_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def wrong_with(data: str | bytes, *, from_client: bool = False) -> str:
    with pytest.raises(JsonError) as failure:
        parse_json(data, from_client=from_client)
    return str(failure.value)


@given(JSON, st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_what_json_can_hold_is_read_in_the_encodings_that_show_themselves(
    value: Any, encoding: str
) -> None:
    assert parse_json(json.dumps(value).encode(encoding)) == value
    assert parse_json(json.dumps(value), from_client=True) == value


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"a": 1,\n "b": "\xff"}', "line 2 holds bytes that are not UTF-8"),
        (b'{"a": }', "Expecting value: line 1 column 7 (char 6)"),
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b"[" * 200 + b"]" * 200, f"more than {DEEPEST} deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, f"more than {DEEPEST} deep"),
        (b"[" + b"9" * 5000 + b"]", "a number has 5000 digits"),
        (b"[1e999]", "the number 1e999 is too large"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_else(data: bytes, told: str) -> None:
    assert told in wrong_with(data)


def test_nan_is_nothing_in_a_file_and_refused_in_a_message() -> None:
    assert parse_json('{"score": NaN, "best": -Infinity}') == {"score": None, "best": None}
    assert wrong_with("[NaN]", from_client=True) == "NaN is not a number in JSON"


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * MAX_VALUES + "1]",
        "[" + "[]," * MAX_VALUES + "1]",
        "[" + '"",' * MAX_VALUES + "1]",
        "{" + ",".join(f'"{number}":1' for number in range(MAX_VALUES)) + "}",
        '"" ' * (MAX_VALUES + 1) + ",[{:" * MAX_VALUES,
    ],
    ids=["numbers", "lists", "texts", "members", "no JSON"],
)
def test_a_message_has_a_bound_of_values_which_a_file_has_not(text: str) -> None:
    assert "more than 100,000 values" in wrong_with(text, from_client=True)
    if not text.startswith('"" '):
        assert parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        ",[{:" * MAX_VALUES,
        '",' * MAX_VALUES,
        "\\," * MAX_VALUES,
        '\\"[' * MAX_VALUES,
        "\n{" * MAX_VALUES,
        "," * MAX_VALUES + "\\",
    ],
)
def test_what_stands_inside_a_text_is_no_value(text: str) -> None:
    value = {"content": text, "more": [text, 1]}
    assert parse_json(json.dumps(value), from_client=True) == value
    assert parse_json(json.dumps(value, separators=(",", ":")), from_client=True) == value
