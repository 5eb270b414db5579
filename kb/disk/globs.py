"""git's pattern language as compiled expressions, and the include and exclude globs made of it.

pathspec compiles the patterns. Its matchers are not used: they take a path alone and accept a
match on one of its parents, and so have to guess where the walk knows (`foo/**` together with
`!foo/keep.md` shows the difference).

Names are compared in composed form (NFC): a pattern typed on one system fits a name that
another system stores decomposed.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from kb.disk.skipped import named_by
from kb.errors import UsageError

MOST_ALTERNATIVES = 256  # globs that the braces of one may stand for
MOST_SHOWN = 100  # characters of a glob in a message
MOST_EXPANDED = 100_000  # characters of all globs that are given together, braces expanded
_ODD_SET = re.compile(r"\[[!^]?\]?(?:\\\]|[^\]])*?(?:\[|--|&&|\|\||~~)")


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
        UsageError: a glob that can match nothing, such as one with an unclosed bracket, or whose
            braces stand for too many; or all of them are too long.
    """

    __slots__ = ("_descend", "_expressions")

    def __init__(self, globs: Sequence[str], *, descend: bool) -> None:
        self._descend = descend
        self._expressions = _expressions(tuple(globs))

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def match(self, path: str, must_name: Sequence[str] = ()) -> bool:
        """Whether a glob takes the path, naming these parts of it; a folder's ends with a slash."""
        path = composed(path)
        parts = {"", *path.split("/")} & self._expressions.keys()
        for expression, whole, segments in chain(*(self._expressions[part] for part in parts)):
            if must_name and not named_by(segments, must_name):
                continue
            match = expression.search(path)
            if match and (whole or self._descend or is_entry_itself(match)):
                return True
        return False

    def may_name(self, part: str) -> bool:
        """Whether a segment of any glob names this part of a path."""
        return any(named_by(segments, [part]) for segments in self._segments())

    @property
    def names_hidden(self) -> bool:
        """Whether a segment of any glob names something that begins with a dot."""
        return any(part.startswith(".") for segments in self._segments() for part in segments)

    def _segments(self) -> Iterator[list[str]]:
        return (segments for *_, segments in chain(*self._expressions.values()))


@lru_cache(maxsize=8)  # a sync asks for the same ones several times, and 10,000 take a second
def _expressions(
    globs: tuple[str, ...],
) -> dict[str, list[tuple[re.Pattern[str], bool, list[str]]]]:
    """Each glob's expression, whether it takes all below, and segments; by the longest literal."""
    require_few(globs)
    expressions: dict[str, list[tuple[re.Pattern[str], bool, list[str]]]] = {}
    for given in globs:
        for glob in _braces_expanded(composed(given).removeprefix("./"), given):
            # Here "!" and "#" are letters of a name, not marks as in an ignore file.
            pattern = compiled("\\" + glob if glob.startswith(("!", "#")) else glob)
            if pattern is None or pattern.regex is None:
                raise UsageError(
                    f'The glob "{_shortened(given)}" matches nothing: check its brackets and '
                    'backslashes, or put a backslash before a "[" that is part of a name.'
                )
            parts = glob.strip("/").split("/")
            plain = [part for part in parts if not re.search(r"[*?[\\\s]", part)]
            whole = glob.endswith("/") or not re.search(r"[*?[]", parts[-1])
            segments = glob.replace("\\", "").strip("/").split("/")
            key = max(plain, key=len, default="")
            expressions.setdefault(key, []).append((pattern.regex, whole, segments))
    return expressions


def require_few(globs: Sequence[str]) -> None:
    """Raise UsageError for globs that take long to compile: about a second at the limit."""
    characters = 0
    for given in globs:
        with contextlib.suppress(UsageError):  # it is refused for itself
            characters += sum(map(len, _braces_expanded(given, given)))
        if characters > MOST_EXPANDED:
            raise UsageError(
                f'The {len(globs):,} globs up to "{_shortened(given)}" have more than '
                f"{MOST_EXPANDED:,} characters with their braces expanded: give fewer or shorter "
                "ones."
            )


def unusable(globs: Sequence[str]) -> dict[str | None, str]:
    """The globs that can match nothing, and why; None stands for all of them, if too many."""
    try:
        require_few(globs)
    except UsageError as error:
        return {None: error.message}
    why: dict[str | None, str] = {}
    with contextlib.suppress(UsageError):  # as a walk compiles them, which is then done
        Globs(globs, descend=False)
        return why
    for glob in globs:
        try:
            Globs([glob], descend=False)
        except UsageError as error:
            why[glob] = error.message
    return why


def compiled(text: str) -> GitIgnoreSpecPattern | None:
    """The pattern; None for one that git ignores as unusable."""
    # Python means to give `[[`, `--`, `&&`, `||` and `~~` within a set another meaning one day, and
    # says so on stderr. The filter is every thread's, so it is changed for such sets alone.
    with warnings.catch_warnings() if _ODD_SET.search(text) else contextlib.nullcontext():
        if _ODD_SET.search(text):
            warnings.simplefilter("ignore", FutureWarning)
        try:
            written, include = GitIgnoreSpecPattern.pattern_to_regex(text)
            # Compiled only here, as it is to be: that takes most of the time.
            expression = written and re.compile(_without_retries(_within_names(written)))
            return GitIgnoreSpecPattern(expression, include)
        except (ValueError, re.error):
            return None


def is_entry_itself(match: re.Match[str]) -> bool:
    """Whether a pattern matched the whole path, not a parent of it."""
    # Its only group, `(?P<name>/)`, is set when the pattern was used up at a parent's slash.
    return match.lastgroup is None


def composed(text: str) -> str:
    """The text in the form in which paths and patterns are compared."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _braces_expanded(glob: str, given: str) -> list[str]:
    """The globs that `{a,b}` stands for; UsageError if there are too many."""
    plain: list[str] = []
    waiting = [glob]
    while waiting:
        pattern = waiting.pop()
        if (braces := _first_braces(pattern)) is None:
            plain.append(pattern)
            continue
        start, end = braces
        choices = pattern[start + 1 : end - 1].split(",")
        waiting += [pattern[:start] + choice + pattern[end:] for choice in reversed(choices)]
        if len(plain) + len(waiting) > MOST_ALTERNATIVES:
            raise UsageError(
                f'The glob "{_shortened(given)}" stands for more than {MOST_ALTERNATIVES} globs: '
                "give several shorter ones, or use * and ?."
            )
    return plain


def _first_braces(glob: str) -> tuple[int, int] | None:
    for braces in _BRACES.finditer(glob):
        if "," in braces[0] and not glob.startswith("\\", braces.start() - 1):
            return braces.span()
    return None


def _shortened(glob: str) -> str:
    return glob if len(glob) <= MOST_SHOWN else glob[:MOST_SHOWN] + "..."


def _within_names(text: str) -> str:
    """The expression with sets such as `[!a]` that never match a slash, as in git."""
    if not _SET.search(text):
        return text
    return "".join(f"(?!/){part}" if _SET.match(part) else part for part in _TOKEN.findall(text))


def _without_retries(text: str) -> str:
    """The same expression in linear time: for all but the last star the first fit does (atomic)."""
    if text.count(_STAR) < 2 and text.count(".+") < 2:
        return text
    # [before, folders, piece, folders, piece ...]: all but the last folders are settled at once.
    pieces = [
        part if part in _ANY_FOLDERS_LAZY else _stars_kept(part)
        for part in _ANY_FOLDERS.split(text)
    ]
    for at in range(1, len(pieces) - 2, 2):
        lazy = _ANY_FOLDERS_LAZY[pieces[at]]
        pieces[at : at + 2] = ["", f"(?>{lazy}{pieces[at + 1]}(?=/))"]
    return "".join(pieces)


def _stars_kept(text: str) -> str:
    """Make each star that another follows in the same name atomic, with what is between them."""
    kept: list[str] = []
    star: int | None = None  # where in `kept` the last star of this name is
    for token in _TOKEN.findall(text):
        if token == _STAR:
            if star is not None:
                between = "".join(kept[star + 1 :])
                kept[star:] = [f"(?>{_STAR}?{between})"] if between else []
            star = len(kept)
        elif token in ("/", "("):
            star = None
        kept.append(token)
    return "".join(kept)


# The parts of which pathspec makes its expressions.
_STAR = "[^/]*"
_SET = re.compile(r"\[(?!\^/\]).")
_ANY_FOLDERS = re.compile(r"(\(\?:\.\+/\)\?|\(\?:/\.\+\)\?)")
_ANY_FOLDERS_LAZY = {"(?:.+/)?": "(?:.+?/)??", "(?:/.+)?": "(?:/.+?)??"}
_TOKEN = re.compile(r"\\.|\[\^/\][*+]?|(?:\(\?!/\))?\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)

_BRACES = re.compile(r"\{[^{}]*\}")
