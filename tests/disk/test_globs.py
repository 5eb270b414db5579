"""Globs mean what they meant, in time that no pattern can stretch."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from kb.disk.globs import MOST_ALTERNATIVES, Globs, _expressions, compiled
from kb.errors import UsageError

PATTERN_PARTS = st.sampled_from(
    ["a", "b", "*", "*", "?", "/", "**/", "/**/", "[ab]", "[!a]", "[]-a]", "\\*", ".", "-"]
)
PATHS = st.lists(st.text("aab*.-]", min_size=1, max_size=4), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(parts=st.lists(PATTERN_PARTS, min_size=1, max_size=9), path=PATHS)
def test_an_expression_without_retries_matches_as_pathspecs_own(
    parts: list[str], path: list[str]
) -> None:
    glob = "".join(parts)
    try:
        reference = GitIgnoreSpecPattern(glob).regex
    except ValueError:
        assert compiled(glob) is None
        return
    pattern = compiled(glob)
    assert pattern is not None
    if reference is None:
        assert pattern.regex is None
        return
    assert pattern.regex is not None
    # In git a set never stands for a slash; pathspec lets it.
    strict = reference.pattern.replace("[^a]", "(?!/)[^a]").replace("[]-a]", "(?!/)[]-a]")
    for text in ("/".join(path), "/".join(path) + "/"):
        wanted, found = re.search(strict, text), pattern.regex.search(text)
        assert (wanted and wanted.lastgroup) == (found and found.lastgroup)
        assert (wanted is None) == (found is None)
        if not glob.startswith("./"):  # which is taken off
            assert Globs([glob], descend=True).match(text) == (found is not None)


def test_a_path_is_compared_with_few_of_many_globs() -> None:
    many = Globs([f"{number}/**/*.md" for number in range(1000)], descend=False)
    assert many.match("7/docs/a.md")
    assert not many.match("7/docs/a.txt")
    assert not many.match("docs/7.md")
    assert max(map(len, _expressions(tuple(f"{n}/**/*.md" for n in range(1000))).values())) == 1


def test_a_set_never_stands_for_a_slash() -> None:
    assert not Globs(["/a[!b]c"], descend=True).match("a/c")
    assert not Globs(["/a[+-0]c"], descend=True).match("a/c")
    assert Globs(["/a[!b]c"], descend=True).match("axc")


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 30 + "b", "a" * 250),
        ("**/a/" * 12 + "b", "a/" * 1000),
        ("*[ab]?" * 15 + "c", "ab" * 120),
        ("**/*a*a*a*a/" * 6 + "b", ("a" * 200 + "/") * 15),
        ("*" * 200 + "b", "a" * 250),
    ],
)
def test_no_pattern_takes_long_with_any_path(glob: str, path: str) -> None:
    # Tried one way after another these would take years, inside the engine, where no other
    # thread gets a turn: so in a process of its own.
    code = (
        "import sys; from kb.disk.globs import Globs, compiled\n"
        "print(Globs([sys.argv[1]], descend=True).match(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, glob, path], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    "glob", ["{a,b}" * 16, "{a,b,c,d,e,f,g,h}" * 5, "{a,b}" * 5000, "{,}" * 40]
)
def test_braces_that_stand_for_too_many_globs_are_refused(glob: str) -> None:
    with pytest.raises(UsageError, match=f"more than {MOST_ALTERNATIVES} globs") as refused:
        Globs([glob], descend=False)
    assert len(refused.value.message) < 300


def test_braces_may_be_nested_escaped_or_have_no_choice() -> None:
    globs = Globs(["{docs,notes{1,2}}/*.{md,txt}", "x\\{a,b\\}", "{one}"], descend=False)
    for path in ("docs/a.md", "notes1/a.txt", "notes2/a.md", "x{a,b}", "{one}"):
        assert globs.match(path), path
    for path in ("notes/a.md", "xa", "one", "docs/a.rst"):
        assert not globs.match(path), path
    assert Globs(["{a,b}" * 8], descend=False).match("abababab")


@pytest.mark.parametrize(
    "glob", ["[[a]x.md", "[a--z].md", "[a&&b]*.md", "[x||y].md", "[~~]", "*[[]["]
)
def test_an_odd_set_brings_no_warning_of_python(glob: str) -> None:
    with contextlib.suppress(UsageError):  # a warning would be an error here
        Globs([glob], descend=True).match("docs/a.md")
    with contextlib.suppress(UsageError):
        Globs([f"a/{glob}/**"], descend=False).match("docs/a.md")


@pytest.mark.parametrize("glob", ["[]--]", "[]&&]*", "[\\]||]", "[^\\&&b]", "[!]\\~~\\]"])
def test_an_odd_set_with_brackets_of_its_own_brings_none_either(glob: str) -> None:
    compiled(glob)  # a warning would be an error here


def test_globs_that_together_stand_for_too_much_are_refused_before_any_is_compiled() -> None:
    with pytest.raises(UsageError, match="characters with their braces expanded"):
        Globs([f"{'{a,b}' * 8}{number}" for number in range(20_000)], descend=True)
    Globs([f"docs/page-{number}.md" for number in range(2_000)], descend=False)
