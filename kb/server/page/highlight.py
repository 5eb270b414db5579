"""Code in pieces with their kinds, by Pygments, within a time that hostile code cannot stretch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

Line = list[tuple[str, str]]  # kind, or "", and text

# A lexer's expressions may take quadratic time, and no other thread runs meanwhile: 4,000 hostile
# characters of these languages took .7 s at most (C#: over 2).
_LANGUAGES = frozenset(
    """
    bash sh shell zsh console fish powershell batch python py python3 pycon js javascript jsx ts
    typescript tsx json yaml yml toml ini html xml css scss sql c cpp c++ h java kotlin swift go
    golang rust rs ruby rb php perl lua r julia haskell scala elixir erlang clojure dart docker
    dockerfile diff http nginx graphql protobuf cmake vim latex tex zig nix markdown md
    """.split()
)
_ENDINGS = {
    **dict.fromkeys(("cc", "cxx", "hh", "hpp", "hxx"), "cpp"),
    **dict.fromkeys(("mjs", "cjs"), "js"),
    **dict.fromkeys(("mts", "cts"), "ts"),
    "pyi": "py",
}
_LONGEST = 20_000  # characters
_SECONDS = 0.5  # of processor time, for one block
_KINDS = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Tag, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Attribute, "f"),
    (String, "s"),
    (Number, "n"),
)
KINDS = frozenset(kind for _, kind in _KINDS)


def highlight(code: str, language: str) -> list[Line]:
    """The lines of some code; uncoloured if its language, the word after a fence or a file's
    suffix, is not one of ours."""
    name = language.replace(",", " ").split(" ")[0].lower()
    lines: list[Line] = [[]]
    for kind, text in _pieces(code, name if len(code) <= _LONGEST else ""):
        first, *rest = text.split("\n")
        if first:
            lines[-1].append((kind, first))
        lines += [[(kind, line)] if line else [] for line in rest]
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _pieces(code: str, name: str) -> Iterator[tuple[str, str]]:
    lexer, done, until = _lexer(name), 0, time.thread_time() + _SECONDS
    if lexer is not None:
        for place, token, text in lexer.get_tokens_unprocessed(code):
            if time.thread_time() > until:
                break
            yield next((kind for kinds, kind in _KINDS if token in kinds), ""), text
            done = place + len(text)
    yield "", code[done:]


@cache
def _lexer(name: str) -> Any:
    try:
        name = _ENDINGS.get(name, name)
        return get_lexer_by_name(name) if name in _LANGUAGES else None
    except ClassNotFound:
        return None
