"""Whatever a configuration file looks like: an entry comes and goes, and nothing else changes."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from kb.assistants import jsonc, toml

KEYS = ("mcpServers", "kb")
TABLE = ("mcp_servers", "kb")
ENTRY = {"type": "stdio", "command": "/usr/bin/kb", "args": ["serve"]}
LATER = {"command": "/opt/kb", "args": ["--db", "größe ☂", "serve"]}
SPACES = ["", "", " ", "\n", "\n  ", "\t", "\r\n", ' // "x" {\n', "/* , } */"]
VALUES = ["1", "-2.5e3", "true", "null", '"a"', r'"x\"//y"', '"{"', '"☂"', "[]", "{}"]
TOML_VALUES = ["1", '"a"', "'b'", "[1, 2]", "true", '"""\n[mcp_servers.kb]\n"""', "{ a = 1 }"]
INLINE = ["{}", "{ }", "{a={command='x'}} # c", '{ "b c" = {}, d.e = 1 }']
HEADERS = [
    "[t]",
    "[mcp_servers.a]",
    "[mcp_servers.a.env]",
    "[[list]]",
    '[ mcp_servers . "b c" ]',
]


class Writer:
    """Writes files as people do, only worse."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def space(self) -> str:
        return self._random.choice(SPACES)

    def sequence(self, items: list[str]) -> str:
        text = f"{self.space()},{self.space()}".join(items)
        end = f"{self.space()}," if items and self._random.random() < 0.3 else ""
        return f"{self.space()}{text}{end}{self.space()}"

    def value(self, depth: int) -> str:
        kind = self._random.random()
        if depth > 3 or kind < 0.4:
            return self._random.choice(VALUES)
        if kind < 0.6:
            some = range(self._random.randint(0, 3))
            return f"[{self.sequence([self.value(depth + 1) for _ in some])}]"
        return self.object({f"k{i}": None for i in range(self._random.randint(0, 3))}, depth + 1)

    def object(self, members: dict[str, str | None], depth: int = 0) -> str:
        items = [
            f"{json.dumps(key)}{self.space()}:{self.space()}{value or self.value(depth)}"
            for key, value in members.items()
        ]
        return f"{{{self.sequence(items)}}}"

    def json_file(self) -> str:
        servers = self.object({f"s{i}": None for i in range(self._random.randint(0, 3))}, 1)
        members = [("before", None), ("mcpServers", servers), ("after", None)]
        some = self._random.sample(members, self._random.randint(0, 3))
        return f"{self.space()}{self.object(dict(some))}{self.space()}"

    def toml_file(self) -> str:
        choose = self._random.choice
        lines = [f"k{i} = {choose(TOML_VALUES)}{choose(['', '  # c'])}" for i in range(2)]
        lines += choose([[], [], [f"mcp_servers = {choose(INLINE)}"]])
        for header in self._random.sample(HEADERS, self._random.randint(0, 4)):
            lines += choose([[], ["", "# about what follows"]])
            lines += [header + choose(["", " # h"])]
            lines += [f"v{i} = {choose(TOML_VALUES)}" for i in range(self._random.randint(0, 2))]
        end = choose(["\n", "\r\n"])
        return end.join(lines) + choose(["", end, end * 2])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_json_file_gets_an_entry_and_loses_it(random: Random) -> None:
    text = Writer(random).json_file()
    before = jsonc.read(text)
    added = jsonc.put(text, KEYS, ENTRY)
    assert jsonc.read(added) == {
        **before,
        "mcpServers": {**before.get("mcpServers", {}), "kb": ENTRY},
    }
    rest = iter(added)
    assert all(character in rest for character in text)  # nothing was taken away
    assert jsonc.put(added, KEYS, ENTRY) == added
    changed = jsonc.put(added, KEYS, LATER)
    assert jsonc.read(changed)["mcpServers"]["kb"] == {**ENTRY, **LATER}
    for one in (added, changed):
        left = jsonc.read(jsonc.remove(one, KEYS))
        assert left == {**before, "mcpServers": before.get("mcpServers", {})}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_toml_file_gets_a_table_and_loses_it(random: Random) -> None:
    text = Writer(random).toml_file()
    try:
        before = toml.read(text)
    except toml.Malformed:
        return  # a table that stands twice
    added = toml.put(text, TABLE, ENTRY)
    rest = iter(added)
    assert all(character in rest for character in text)  # nothing was taken away
    assert toml.put(added, TABLE, ENTRY) == added
    followed = f"{added}\n# about the next\n[next]\nx = 1\n"
    changed = toml.put(followed, TABLE, LATER)
    assert toml.read(changed)["mcp_servers"]["kb"] == {**ENTRY, **LATER}
    left = toml.remove(changed, TABLE)
    assert left.endswith("\n# about the next\n[next]\nx = 1\n")
    assert toml.read(left) == {
        **before,
        "next": {"x": 1},
        **({"mcp_servers": before["mcp_servers"]} if "mcp_servers" in before else {}),
    }
