"""What a page shows of other files: found with the page, read inside its source, never stale."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

import kb
from kb.disk.globs import Globs
from kb.library.knowledge_base import KnowledgeBase
from kb.results.findings import SOUND
from kb.sources.folder import SourceFile, read
from kb.sources.includes import with_shown

BODY = "import zebra\ndef quokka(item):\n    # marsupial\n    return item\n"
MARKED = "# {begin}\nkept = 'quokka'\n# {end}\nleft_out = 'zebra'\n"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with kb.open(tmp_path / "kb.db") as opened:
        yield opened


def tree(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def rows_of(base: KnowledgeBase, word: str) -> list[tuple[str, int | None, int | None]]:
    rows = base.search(f"+{word}", limit=20).results
    return [(row.document_id, row.start_line, row.end_line) for row in rows]


SHOWING = [
    ("a.md", '# Page\n\n--8<-- "src/body.py"\n', 3),
    ("a.md", '# Page\n\n```python\n--8<-- "src/body.py:2:3"\n```\n', 4),
    ("docs/en/a.md", "# Page\n\nSo:\n\n{* ../src/body.py hl[2] *}\n", 5),
    ("docs/a.md", "# Page\n\n{!> src/body.py!}\n", 3),
    ("a.md", '# Page\n\n{% include-markdown "src/body.py" %}\n', 3),
    ("docs/a.rst", "Page\n====\n\n.. literalinclude:: ../src/body.py\n   :lines: 1-2\n", 4),
    ("docs/a.md", "# Page\n\n```{literalinclude} ../src/body.py\n:lines: 2\n```\n", 3),
    ("docs/a.adoc", "= Page\n\n----\ninclude::../src/body.py[lines=1..2]\n----\n", 4),
    ("docs/a.md", "# Page\n\n{{#include ../src/body.py:2:3}}\n", 3),
    ("docs/a.mdx", "import Body from '!!raw-loader!../src/body.py';\n\n# Page\n", 1),
    ("docs/a.md", "# Page\n\n<<< @/src/body.py{2}\n", 3),
]


@pytest.mark.parametrize(("page", "text", "line"), SHOWING)
def test_what_a_page_shows_is_found_at_the_line_that_shows_it(
    base: KnowledgeBase, tmp_path: Path, page: str, text: str, line: int
) -> None:
    base.add(tree(tmp_path / "site", {page: text, "src/body.py": BODY}))
    assert rows_of(base, "quokka") == [(page, line, line)]
    row = base.search("+quokka").results[0]
    assert "src/body.py" in (row.content or "")
    assert "quokka" in repr(base.context("quokka"))


@pytest.mark.parametrize(("page", "text", "line"), SHOWING)
@pytest.mark.parametrize("left_out_by", ["src/*.py", "src", ".gitignore", "src/.ignore"])
def test_no_page_shows_what_its_source_leaves_out(
    base: KnowledgeBase, tmp_path: Path, page: str, text: str, line: int, left_out_by: str
) -> None:
    site = tree(tmp_path / "site", {page: text, "src/body.py": BODY})
    is_glob = left_out_by.startswith("src") and not left_out_by.endswith("ignore")
    if not is_glob:
        tree(site, {left_out_by: "body.py\n"})
    (added,) = base.add(site, exclude=[left_out_by] if is_glob else []).collections
    assert rows_of(base, "quokka") == []
    notices = [notice["path"] for notice in added.notices if notice["path"]]
    assert notices == [page] * ("```" not in text)


@pytest.mark.parametrize("left_out_by", ["src/*.py", "src", ".gitignore"])
def test_a_name_in_other_letters_shows_nothing_that_is_left_out(
    base: KnowledgeBase, tmp_path: Path, left_out_by: str
) -> None:
    site = tree(tmp_path / "site", {"a.md": '# A\n\n--8<-- "SRC/Body.py"\n', "src/body.py": BODY})
    is_glob = left_out_by.startswith("src")
    if not is_glob:
        tree(site, {left_out_by: "body.py\n"})
    base.add(site, exclude=[left_out_by] if is_glob else [])
    assert rows_of(base, "quokka") == []  # also where the disk takes both for the same


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("written", ["NFC", "NFD"])
def test_a_file_is_shown_and_listed_by_its_name_in_either_normal_form(
    base: KnowledgeBase, tmp_path: Path, stored: str, written: str
) -> None:
    name = unicodedata.normalize(stored, "Größe.py")  # type: ignore[arg-type]
    typed = unicodedata.normalize(written, "Größe.py")  # type: ignore[arg-type]
    page = f'# A\n\n--8<-- "{typed}"\n'
    manifest = json.dumps({"sources": {"files": ["a.md", typed]}})
    files = {"a.md": page, name: BODY, "manifest.json": manifest}
    (added,) = base.add(tree(tmp_path / "site", files)).collections
    assert (added.added, added.errors) == (2, [])
    assert {path for path, _, _ in rows_of(base, "quokka")} == {"a.md", name}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a.rst", '# Page\n\n--8<-- "src/body.py"\n'),
        ("a.adoc", "= Page\n\n{* src/body.py *}\n"),
        ("a.rst", "Page\n====\n\ninclude::src/body.py[]\n"),
        ("a.md", "# Page\n\ninclude::src/body.py[]\n"),
        ("a.md", "# Page\n\n.. include:: src/body.py\n"),
        ("a.txt", "Page\n\n{{#include src/body.py}}\n"),
        ("a.org", "* Page\n\n<<< src/body.py\n"),
    ],
)
def test_a_syntax_shows_nothing_where_the_format_has_another(
    base: KnowledgeBase, tmp_path: Path, page: str, text: str
) -> None:
    (added,) = base.add(tree(tmp_path / "site", {page: text, "src/body.py": BODY})).collections
    assert not rows_of(base, "quokka")
    assert not any(notice["path"] for notice in added.notices)


def test_lines_of_a_part_end_where_lines_of_a_page_end(base: KnowledgeBase, tmp_path: Path) -> None:
    part = "zebra\x0c\u2028zebra\nquokka\nzebra\n"
    base.add(tree(tmp_path / "site", {"a.md": '--8<-- "b.csv:2:2"\n', "b.csv": part}))
    assert base.get("a.md").content.endswith("\nb.csv, lines 2-2:\nquokka\n")


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("include::src/part.py[tag=one]\n", ("tag::one[]", "end::one[]")),
        ('--8<-- "src/part.py:one"\n', ("--8<-- [start:one]", "--8<-- [end:one]")),
        ("{{#include src/part.py:one}}\n", ("ANCHOR: one", "ANCHOR_END: one")),
        ("<<< src/part.py#one\n", ("#region one", "#endregion one")),
    ],
)
def test_a_named_part_is_shown_alone(
    base: KnowledgeBase, tmp_path: Path, text: str, marks: tuple[str, str]
) -> None:
    part = MARKED.format(begin=marks[0], end=marks[1])
    page = "a.adoc" if text.startswith("include::") else "a.md"
    base.add(tree(tmp_path / "site", {page: text, "src/part.py": part}))
    assert rows_of(base, "quokka") == [(page, 1, 1)]
    assert rows_of(base, "zebra") == []


def test_lines_of_the_page_stay_those_of_the_file(base: KnowledgeBase, tmp_path: Path) -> None:
    text = '# Page\n\n--8<-- "src/body.py"\n\n## Later\n\nA vane.\n'
    base.add(tree(tmp_path / "site", {"a.md": text, "src/body.py": BODY}))
    assert rows_of(base, "vane") == [("a.md", 5, 7)]
    assert base.section("a.md", "Later").content == "## Later\n\nA vane."
    content = base.get("a.md").content
    assert content == f"{text}\nsrc/body.py:\n{BODY}\n"


def test_a_page_follows_the_files_that_it_shows(base: KnowledgeBase, tmp_path: Path) -> None:
    site = tree(tmp_path / "site", {"a.md": '# Page\n\n--8<-- "src/body.py"\n'})
    base.add(site)
    assert rows_of(base, "quokka") == []
    tree(site, {"src/body.py": BODY})
    base.sync()
    assert rows_of(base, "quokka") == [("a.md", 3, 3)]
    tree(site, {"src/body.py": BODY.replace("quokka", "wombat")})
    base.sync()
    assert (rows_of(base, "quokka"), rows_of(base, "wombat")) == ([], [("a.md", 3, 3)])
    shutil.rmtree(site / "src")
    base.sync()
    assert rows_of(base, "wombat") == []
    assert all(finding.state == SOUND for finding in base.health(full=True))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.txt", "the source has no such file, or excludes it"),
        ("/etc/hostname", "the source has no such file, or excludes it"),
        (".env", "the source has no such file, or excludes it"),
        ("link.txt", "the source has no such file, or excludes it"),
        ("key.txt", "it is a private key"),
        ("large.txt", "it has more than 100 kB"),
        ("missing.txt", "the source has no such file, or excludes it"),
    ],
)
def test_what_may_not_be_shown_is_left_out_and_told(
    base: KnowledgeBase, tmp_path: Path, path: str, why: str
) -> None:
    files = {
        "secret.txt": "quokka\n",
        "site/.env": "TOKEN=quokka\n",
        "site/key.txt": "-----BEGIN PRIVATE KEY-----\nquokka\n",
        "site/large.txt": "quokka " * 20_000,
        "site/a.md": f'# Page\n\n--8<-- "{path}"\n\n```\n--8<-- "{path}"\n```\n'
        f"\nAs `{{* {path} *}}`.\n",
    }
    tree(tmp_path, files)
    (tmp_path / "site" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (site,) = base.add(tmp_path / "site", include=["a.md"]).collections
    assert rows_of(base, "quokka") == []
    # Once: not of what stands in code.
    message = f"line 3 shows {path}, which is left out: {why}"
    assert site.notices == [{"path": "a.md", "message": message}]


@pytest.mark.parametrize(
    "text", ["{*" + "a" * 2_000_000, "{*a*}" * 400_000, "`" * 2_000_000, "{%" + " " * 2_000_000]
)
def test_no_page_is_looked_through_for_long(tmp_path: Path, text: str) -> None:
    file = tree(tmp_path, {"a.md": text}) / "a.md"
    page = SourceFile.of("a.md", file, file.stat())
    source = with_shown(page, read(page), Globs((), descend=True))
    assert not source.shown
    assert len(source.notice) < 1_000
