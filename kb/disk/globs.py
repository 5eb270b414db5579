"""git's pattern language as compiled expressions, and the include and exclude globs made of it.

pathspec compiles the patterns. Its matchers are not used: they take a path alone and accept a
match on one of its parents, and so have to guess where the walk knows (`foo/**` together with
`!foo/keep.md` shows the difference).

Names are compared in composed form (NFC): a pattern typed on one system fits a name that
another system stores decomposed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from kb.disk.skipped import named_by
from kb.errors import UsageError

__all__ = ["Globs", "compiled", "composed", "is_entry_itself"]


class Globs:
    """Include or exclude globs, relative to the root; a path matches when any of them does.

    `*.md` fits at any depth, `docs/*.md` in that folder only, `**/` any folders, `{a,b}` either.
    A folder's name (`drafts`, `drafts/`) stands for all that it holds.

    Args:
        globs: the patterns.
        descend: whether a match on a folder takes all that it holds even where the last part
            has wildcards. Right for excluding (`build*` hides the folder `build-2`), wrong for
            including (`docs/*` means the files in `docs`).

    Raises:
        UsageError: a glob that can match nothing, such as one with an unclosed bracket.
    """

    __slots__ = ("_expressions",)

    def __init__(self, globs: Sequence[str], *, descend: bool) -> None:
        self._expressions: list[tuple[re.Pattern[str], bool, list[str]]] = []
        for given in globs:
            for glob in _braces_expanded(composed(given).removeprefix("./")):
                # Here "!" and "#" are letters of a name, not marks as in an ignore file.
                literal = "\\" + glob if glob.startswith(("!", "#")) else glob
                pattern = compiled(literal)
                if pattern is None or pattern.regex is None:
                    raise UsageError(
                        f'The glob "{given}" matches nothing: check its brackets and backslashes, '
                        'or put a backslash before a "[" that is part of a name.'
                    )
                is_folder_name = re.search(r"[*?[]", glob.rstrip("/").rpartition("/")[2]) is None
                whole = descend or glob.endswith("/") or is_folder_name
                segments = glob.replace("\\", "").strip("/").split("/")
                self._expressions.append((pattern.regex, whole, segments))

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def match(self, path: str, must_name: Sequence[str] = ()) -> bool:
        """Whether any glob takes the path; a folder's path ends with a slash.

        Args:
            must_name: parts of the path that a glob has to name for that (see `kb.disk.skipped`).
        """
        path = composed(path)
        for expression, whole, segments in self._expressions:
            if must_name and not named_by(segments, must_name):
                continue
            found = expression.search(path)
            if found is not None and (whole or is_entry_itself(found)):
                return True
        return False

    def may_name(self, part: str) -> bool:
        """Whether a segment of any glob names this part of a path."""
        return any(named_by(segments, [part]) for *_, segments in self._expressions)


def compiled(text: str) -> GitIgnoreSpecPattern | None:
    """The pattern, or None for one that git passes over because it cannot be used."""
    try:
        return GitIgnoreSpecPattern(text)
    except (ValueError, re.error):
        return None


def is_entry_itself(found: re.Match[str]) -> bool:
    """Whether a pattern matched the whole path, not only one of its parents."""
    # pathspec's expressions end in `(?:(?P<name>/)|$)`, their only group: it is set when the
    # pattern was used up at a parent's slash.
    return found.lastgroup is None


def composed(text: str) -> str:
    """The text in the form in which paths and patterns are compared."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _braces_expanded(glob: str) -> Iterator[str]:
    braces = re.search(r"(?<!\\)\{([^{}]*,[^{}]*)\}", glob)
    if braces is None:
        yield glob
        return
    for choice in braces[1].split(","):
        yield from _braces_expanded(glob[: braces.start()] + choice + glob[braces.end() :])
