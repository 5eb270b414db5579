"""One text, one truth: what each tool says of a file, whatever its encoding, line ends, name."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from support import Filler, call

from kb.tools.session import Session

RUSSIAN = ("Флюгер показывает направление ветра, анемометр считает обороты.", "Флюгер проверяют")
JAPANESE = ("風向計は風の向きを示します。雨量計は雨の量を測ります。", "風向計を確認します")
CHINESE = ("风向标指示风的方向，雨量计测量降雨量，气压计测量气压。", "风向标需要检查")
FRENCH = ("La girouette à côté de la forêt indique où souffle le vent.", "La girouette étalée")
ENCODINGS = [
    *((FRENCH, encoding) for encoding in ("utf-8", "utf-8-sig", "cp1252", "latin-1")),
    *((FRENCH, encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be")),
    *((RUSSIAN, encoding) for encoding in ("utf-8", "koi8_r", "cp1251", "utf-16")),
    *((JAPANESE, encoding) for encoding in ("shift_jis", "euc_jp", "utf-16")),
    *((CHINESE, encoding) for encoding in ("gb18030", "utf-8")),
]
LINE_ENDS = {
    "lf": ("\n",) * 6,
    "crlf": ("\r\n",) * 6,
    "cr": ("\r",) * 6,
    "mixed": ("\n", "\r\n", "\r", "\r\n", "\n", "\r"),
    "no last": ("\n", "\r\n", "\n", "\r\n", "\n", ""),
}


@pytest.mark.parametrize("ends", LINE_ENDS.values(), ids=LINE_ENDS)
@pytest.mark.parametrize(
    ("sentences", "encoding"), ENCODINGS, ids=[f"{one[0][:2]}-{code}" for one, code in ENCODINGS]
)
def test_every_tool_sees_the_same_lines(
    fill: Filler,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentences: tuple[str, str],
    encoding: str,
    ends: tuple[str, ...],
) -> None:
    first, second = sentences
    monkeypatch.chdir(folder.parent)
    lines = ["# Wind", "", first, first + "\f" + first, second, first]
    data = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode(encoding)
    agrees(fill({"a.md": data}, embed=False), lines, 5)


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\f", "\x1b"])
def test_what_is_no_line_end_in_an_editor_ends_no_line(
    fill: Filler, folder: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.chdir(folder.parent)
    lines = ["# Wind", "", f"a{inside}b", f"{inside}", "La girouette étalée", "end"]
    agrees(fill({"a.md": "\n".join(lines).encode()}, embed=False), lines, 5)


def agrees(kb: Session, lines: list[str], number: int) -> None:
    """All tools give the lines of `docs/a.md`, and the one of a number, as an editor does."""
    place = {"startLine": number, "endLine": number}
    whole = call(kb, "documents_get_document", collection="docs", document="a.md")
    assert whole["content"].removesuffix("\n").split("\n") == lines
    one = call(kb, "documents_get_document", collection="docs", document="a.md", **place)
    assert one["content"].removesuffix("\n") == lines[number - 1]
    file = call(kb, "read_file", path="docs/a.md")["file"]
    assert file["content"].removesuffix("\n").split("\n") == lines
    assert file["lines"] == len(lines)
    part = call(kb, "read_file", path="docs/a.md", **place)["file"]
    assert part["content"].removesuffix("\n") == lines[number - 1]
    found = call(kb, "grep_codebase", pattern=lines[number - 1])
    assert [(row["line"], row["column"], row["text"]) for row in found["matches"]] == [
        (number, 1, lines[number - 1])
    ]
    assert found["totalMatches"] == 1
    assert found["matches"][0]["context"]["after"] == [lines[number]]


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_a_name_is_found_in_either_normal_form(
    fill: Filler, folder: Path, monkeypatch: pytest.MonkeyPatch, stored: str, asked: str
) -> None:
    def written(form: str) -> str:
        return unicodedata.normalize(form, "Größe é.md")  # type: ignore[arg-type]

    name, wanted = written(stored), written(asked)
    kb = fill({name: b"# Gr\n\nThe vane turns.\n", "other.md": b"# Other\n\nA page.\n"})
    monkeypatch.chdir(folder.parent)
    page = {"collection": "docs", "document": wanted}
    assert "vane" in call(kb, "documents_get_document", **page)["content"]
    assert call(kb, "documents_get_outline", **page)["outline"][0]["line"] == 1
    assert "vane" in call(kb, "documents_get_section", **page, section="Gr")["content"]
    assert "related" in call(kb, "documents_find_related", **page)
    assert "vane" in call(kb, "read_file", path=f"docs/{wanted}")["file"]["content"]
    found = call(kb, "grep_codebase", pattern="vane", filePattern=f"**/{wanted}")
    assert found["totalMatches"] == 1


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
def test_imports_are_read_like_every_other_text(
    fill: Filler, folder: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, ends: str
) -> None:
    monkeypatch.chdir(folder.parent)
    kb = fill({"a.md": b"# Wind\n"}, embed=False)
    lines = ['"""La girouette étalée montre le vent à côté de la forêt."""', "import vane", ""]
    (folder / "wind.py").write_bytes(ends.join(lines).encode(encoding))
    (folder / "vane.py").write_bytes(ends.join(["# étalée à côté", "x = 1", ""]).encode(encoding))
    read = call(kb, "read_file", path="docs/wind.py", includeDeps=True)
    assert read["file"]["content"].split("\n")[0] == lines[0]
    assert [(one["path"], one["content"]) for one in read["dependencies"]] == [
        ("docs/vane.py", "# étalée à côté\nx = 1\n")
    ]


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("written", ["NFC", "NFD"])
def test_an_import_is_found_in_either_normal_form(
    fill: Filler, folder: Path, monkeypatch: pytest.MonkeyPatch, stored: str, written: str
) -> None:
    monkeypatch.chdir(folder.parent)
    kb = fill({"a.md": b"# Wind\n"}, embed=False)
    name = unicodedata.normalize(stored, "größe")  # type: ignore[arg-type]
    (folder / f"{name}.py").write_text("x = 1\n")
    told = unicodedata.normalize(written, "größe")  # type: ignore[arg-type]
    (folder / "wind.py").write_text(f"import {told}\n")
    (folder / "wind.js").write_text(f'import {{x}} from "./{told}.py";\n')
    (folder / "wind.c").write_text(f'#include "{told}.py"\n')
    for file in ("wind.py", "wind.js", "wind.c"):
        read = call(kb, "read_file", path=f"docs/{file}", includeDeps=True)
        assert [one["path"] for one in read["dependencies"]] == [f"docs/{name}.py"], file
