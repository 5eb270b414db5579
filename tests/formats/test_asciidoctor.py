"""Titles and terms of AsciiDoc are those that Asciidoctor finds, at the lines that it names."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

from kb.formats.asciidoc import read as read_asciidoc

OUTLINE = Path(__file__).parent / "asciidoctor_outline.rb"
GIT_DOC = Path("/usr/share/doc/git-doc")  # Debian's, with its sources: a manual, a book, a tutorial

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("ruby") and shutil.which("asciidoctor")), reason="needs asciidoctor"
    ),
]

# Lines of which documents are put together at random; with blank lines between some of them.
PIECES = [
    *("== Ropes", "=== Deep ropes", "## Marked", "Harbour\n-------", "Quay\n~~~~", "^^^^"),
    *("Some words.", "NOTE: take care", '"quoted" words', "x::y", "https://example.org/a::b"),
    *("[NOTE]", "[[here]]", "[#there]", "[quote]", "[discrete]", '[cols="1,2"]', ".A title"),
    *(
        "[source,python]\n----\n== code\n----",
        "[source]\nputs 1\n- no item",
        "[verse]\n____\n== verse\n____",
    ),
    *(f"{mark}\n== inside\n\n* item\n{mark}" for mark in ("====", "****", "____", "--", "////")),
    *("....\n== inside\n....", "++++\n<p>\n++++", "```ruby\n# inside\n```", "====", "--", "--"),
    *("// a comment", "|===\n| cell\n== inside\n|===", "////\n\n== inside\n////"),
    *("| cell", "'''", "***", "<<<", "image::a.png[]", "include::part.adoc[]"),
    *("* item", "** inner item", "- dash", ". first", ".. second", "1. one", "a. letter"),
    *("<1> callout", " * indented item", "  indented text", "+\nwords", "+\n--\nwords\n--"),
    *("term::", "term:: text", "other term:: its text", "deep::: words", "deep:::", "far;; words"),
    *("term one::\nterm two:: text", ":name: value", "ifdef::y[words]"),
]


def outlines(files: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What Asciidoctor finds in each of the files."""
    done = subprocess.run(
        ["ruby", str(OUTLINE), *map(str, files)], capture_output=True, text=True, check=True
    )
    for file, line in zip(files, done.stdout.splitlines(), strict=True):
        yield file, json.loads(line)


def plain(text: str) -> str:
    """Text without what is a matter of type: curly quotes, dashes, arrows, widths of blanks."""
    text = text.translate(str.maketrans("’‘“”—–…→\u00a0\u2009", "''\"\"--.-  ")).replace(
        "\u200b", ""
    )
    return re.sub(r"\s*-+>?\s*", "-", " ".join(text.replace("...", ".").split()))


def assert_equal_outlines(files: Sequence[Path], *, ignore: frozenset[str] = frozenset()) -> int:
    """Compare all titles, their levels and lines, and all terms; returns how many there were."""
    compared = 0
    for file, theirs in outlines(files):
        text = file.read_text(encoding="utf-8")
        ours = read_asciidoc(text, text.split("\n"))
        titles = [(min(level, 6), plain(title), line) for level, title, line in theirs["titles"]]
        assert [(h.level, plain(h.text), h.start_line) for h in ours.headings] == titles, text
        terms = [plain(", ".join(names)) for names, _ in theirs["terms"]]
        terms = [one for one in terms if one not in ignore]
        found = [plain(one.text) for one in ours.definitions]
        assert [one for one in found if one not in ignore] == terms, text
        compared += len(titles) + len(terms)
    return compared


def test_the_fixture_and_the_cases() -> None:
    assert_equal_outlines([ROOT / "fixtures" / "formats" / "harbour.adoc"])


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_lines_put_together_at_random(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = []
    for number in range(200):
        lines = [chance.choice(PIECES) + "\n" * chance.randint(1, 2) for _ in range(8)]
        files.append(tmp_path / f"{number}.adoc")
        files[-1].write_text("".join(lines) + "\n== End\n\nx\n", encoding="utf-8")
    assert assert_equal_outlines(files) > 300


@pytest.mark.skipif(not (GIT_DOC / "user-manual.txt").exists(), reason="needs Debian's git-doc")
def test_the_sources_of_gits_manuals() -> None:
    files = sorted(GIT_DOC.rglob("*.txt"))
    # A character by its number, and asterisks in quotes of an older document.
    command = '"ext::ssh-i /home/foo/.ssh/somekey user{}host.example %S foo/repo"'
    odd = {command.format("@"), command.format("&#64;")}
    odd |= {"$GIT_DIR/svn/**/.rev_map.*", "$GIT_DIR/svn/*/.rev_map."}
    assert assert_equal_outlines(files, ignore=frozenset(odd)) > 6_000
