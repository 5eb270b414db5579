"""Search by regular expression: what ripgrep itself finds, cut to what a reply can hold."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from kb.disk import grep as module
from kb.disk.grep import CONTEXT_LENGTH, TEXT_LENGTH, grep, grep_texts
from kb.disk.ripgrep import REGEX_BYTES, list_files, odd_files
from kb.errors import InvalidPattern, SourceError, UsageError
from kb.results.code import CodeMatch, CodeMatches

HANG = 60  # seconds, far beyond any limit: only against waiting for ever


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No result depends on how busy the machine is."""
    monkeypatch.setattr(module, "TIME_LIMIT", float(HANG))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with every kind of file that matters to a search."""
    root = tmp_path_factory.mktemp("project")
    words = ["token", "Token", "TODO", "naïve", "Straße", "日本語", "αβγ", "foo_bar", "x = 1", ""]
    numbered = (f"{number:03} {word}" for number, word in enumerate(itertools.cycle(words)))
    files: dict[str, bytes] = {
        "src/main.ts": b"import { a } from './a';\n\nexport function main() {\n  return a;\n}\n",
        "src/a.ts": "\n".join(itertools.islice(numbered, 300)).encode(),
        "src/deep/er/b.py": "def naïve_token(x):\n  return 'é' + x\n\n\nclass Token: pass".encode(),
        "src/windows.txt": b"first token\r\nsecond\r\n\r\nlast Token\r\n",
        "src/bom.txt": b"\xef\xbb\xbftoken at the start\nno\n",
        "src/utf16.txt": "token é\r\nzwei Straße\r\n".encode("utf-16"),
        "src/utf16be.txt": b"\xfe\xff" + "ein token\nEnde".encode("utf-16-be"),
        "src/latin.txt": b"caf\xe9 token\nna\xefve\n",
        "src/binary.dat": b"token\0token\n",
        "src/late.dat": b"token\n" * 20000 + b"\0",
        "src/empty.txt": b"",
        "src/-dash.txt": b"--token and -e\n",
        "src/one line.txt": b"no line end: token",
        ".github/workflow.yml": b"run: token\n",
        ".gitignore": b"*.log\nignored/\n!keep.log\n/anchored.txt\n",
        "a.log": b"token\n",
        "keep.log": b"token kept\n",
        "anchored.txt": b"token\n",
        "src/anchored.txt": b"token deeper\n",
        "ignored/x.txt": b"token\n",
        "src/deep/.gitignore": b"*.tmp\n!important.tmp\n",
        "src/deep/c.tmp": b"token\n",
        "src/deep/important.tmp": b"token important\n",
        "src/dist/out.js": b"token\n",
        "build/x.js": b"token\n",
        "src/build": b"a script called build: token\n",
        "node_modules/x/i.js": b"token\n",
        ".next/x": b"token\n",
        ".context/x": b"token\n",
        ".kb/x": b"token\n",
        ".git/config": b"token\n",
        ".env": b"token\n",
        ".env.local": b"token\n",
        "src/.ENV": b"token\n",
        "id_rsa": b"token\n",
        "certs/server.PEM": b"token\n",
    }
    for path, data in files.items():
        location = root / path
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_bytes(data)
    (root / "link.ts").symlink_to("src/main.ts")
    return root


def binary() -> str:
    installed = shutil.which("rg", path=sysconfig.get_path("scripts")) or shutil.which("rg")
    assert installed is not None
    return installed


def ripgrep(root: Path, pattern: str, *options: str) -> list[tuple[str, int, int, str]]:
    """Path, line, column in characters, and text of what ripgrep finds by itself, sorted."""
    excluded = (
        *("dist/", "build/", ".next/", ".context/", ".kb/", ".git", "node_modules"),
        *(".env", ".env.*", "id_rsa", "*.pem"),
    )
    command = [binary(), "--no-config", "--json", "--hidden", "--no-require-git", "--crlf"]
    command += ["--no-ignore-global", "--no-ignore-parent", *options]
    command += [f"--iglob=!{glob}" for glob in excluded] + ["-e", pattern, "./"]
    output = subprocess.run(command, cwd=root, capture_output=True, check=False).stdout
    found = []
    binary_files = set()
    for line in output.splitlines():
        event = json.loads(line)
        data: dict[str, Any] = event["data"]
        if event["type"] == "end" and data["binary_offset"] is not None:
            # Its lines were printed before the NUL was reached.
            binary_files.add(data["path"]["text"].removeprefix("./"))
        if event["type"] != "match":
            continue
        if "text" not in data["lines"]:
            continue  # bytes that are not UTF-8 come encoded; they have a test of their own
        text: str = data["lines"]["text"].removesuffix("\n").removesuffix("\r")
        # Of an empty match at the very end of a file it does not say where it is.
        submatches = data["submatches"] or [{"start": len(text.encode())}]
        start = submatches[0]["start"]
        column = len(data["lines"]["text"].encode()[:start].decode()) + 1
        path = data["path"]["text"].removeprefix("./")
        found.append((path, data["line_number"], column, text))
    return sorted(match for match in found if match[0] not in binary_files)


PATTERNS = [
    *("token", "Token", "TODO", "zzz-nothing", "日本語", "naïve", "STRASSE", "straße", "é", "ï"),
    *(
        "^",
        "$",
        "^$",
        "^import",
        "token$",
        "^first",
        "second$",
        "last token$",
        r"\btoken\b",
        r"\d+$",
    ),
    *(
        r"\w+_\w+",
        r"[α-ω]+",
        r"\p{Han}",
        r"\s{2,}return",
        "a|b",
        "(foo|x) ?=",
        ".",
        "x*",
        r"\.",
        "-e",
    ),
    *("--token", r"(?i)TOKEN", r"(?-i)Token", r"[^\x00-\x7f]", r"to(?:k)en", r"\bé\b", r"e\b", "'"),
]


@pytest.mark.parametrize("case_sensitive", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_what_ripgrep_finds(project: Path, pattern: str, case_sensitive: bool) -> None:
    case = "--case-sensitive" if case_sensitive else "--ignore-case"
    expected = ripgrep(project, pattern, case, "--glob=!latin.txt")
    result = grep(project, pattern, "", case_sensitive, 10_000)
    found = [
        (match.file, match.line, match.column, match.text)
        for match in result.matches
        if match.file != "src/latin.txt"
    ]
    assert found == expected
    assert result.total_matches == len(result.matches)
    assert not result.truncated


def test_there_are_thirty_patterns_and_more() -> None:
    assert len(PATTERNS) >= 30


def test_a_match_has_its_place_and_its_neighbours(project: Path) -> None:
    result = grep(project, r"function\s+\w", "", False, 50)
    assert result.matches == [
        CodeMatch(
            file="src/main.ts",
            line=3,
            column=8,
            text="export function main() {",
            before=["import { a } from './a';", ""],
            after=["  return a;", "}"],
        )
    ]
    assert result.total_matches == 1


def test_the_files_searched_are_those_that_hold_text_and_are_not_hidden(project: Path) -> None:
    result = grep(project, "token", "", False, 10_000)
    assert {match.file for match in result.matches} == {
        *(".github/workflow.yml", "keep.log", "src/-dash.txt", "src/a.ts", "src/anchored.txt"),
        *("src/bom.txt", "src/build", "src/deep/er/b.py", "src/deep/important.tmp"),
        *("src/latin.txt", "src/one line.txt", "src/utf16.txt", "src/utf16be.txt"),
        *("src/windows.txt",),
    }
    # Those, main.ts, the two ignore files, and the empty file.
    assert result.files_searched == 18


def test_nothing_found_is_a_result(project: Path) -> None:
    assert grep(project, "zzz-nothing", "", False, 50) == CodeMatches(
        matches=[], total_matches=0, files_searched=18, searched="disk"
    )


def test_odd_files_are_those_that_python_reads_differently(tmp_path: Path) -> None:
    rng = random.Random(7)
    # The borders of what may stand where in UTF-8, and what ends lines or does not.
    parts = [
        bytes([byte]) for byte in b"a\n\r\0\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1"
    ]
    parts += [bytes([byte]) for byte in b"\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"]
    parts += [
        b"\r\n",
        *(letter.encode() for letter in "\u00e9\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"),
    ]
    odd = set()
    for number in range(4_000):
        text = b"".join(rng.choices(parts, k=rng.randint(1, 4)))
        (tmp_path / f"{number}.md").write_bytes(text)
        try:
            text.decode()
        except UnicodeDecodeError:
            odd.add(f"{number}.md")
        # A return at the end of the text ends its last line, whoever reads it.
        if re.search(rb"\0|\r(?!\n|\Z)", text):
            odd.add(f"{number}.md")
    found, complete = odd_files(tmp_path, [], 60.0)
    assert complete
    assert set(found) == odd
    assert 1_000 < len(odd) < 3_900


def test_the_limit_cuts_the_matches_but_not_the_total(project: Path) -> None:
    everything = grep(project, "token", "", False, 10_000)
    for limit in (1, 2, 7, 50):
        result = grep(project, "token", "", False, limit)
        assert result.matches == everything.matches[:limit]
        assert result.total_matches == everything.total_matches
    places = [(match.file, match.line) for match in everything.matches]
    assert places == sorted(places)


def test_windows_line_ends_are_not_shown(project: Path) -> None:
    [match] = grep(project, "^second$", "src/windows.txt", False, 50).matches
    assert (match.text, match.before, match.after) == (
        "second",
        ["first token"],
        ["", "last Token"],
    )


def test_utf_16_and_byte_order_marks_are_read(project: Path) -> None:
    matches = grep(project, "^token", "src/{bom,utf16}.txt", False, 50).matches
    assert [(match.file, match.column, match.text) for match in matches] == [
        ("src/bom.txt", 1, "token at the start"),
        ("src/utf16.txt", 1, "token é"),
    ]


def test_text_in_an_old_encoding_is_shown_as_it_reads(project: Path) -> None:
    [match] = grep(project, "token", "src/latin.txt", False, 50).matches
    assert (match.column, match.text, match.after) == (6, "café token", ["naïve"])


@pytest.mark.parametrize(
    ("file_pattern", "files"),
    [
        ("**/*.ts", ["src/a.ts"]),
        ("*.py", ["src/deep/er/b.py"]),
        ("**/*.{ts,py}", ["src/a.ts", "src/deep/er/b.py"]),
        ("src/*.ts", ["src/a.ts"]),
        ("src/deep/**", ["src/deep/er/b.py", "src/deep/important.tmp"]),
        ("src/deep", ["src/deep/er/b.py", "src/deep/important.tmp"]),
        ("*.log", ["keep.log"]),
        ("./keep.log", ["keep.log"]),
        ("src/[-]dash.txt", ["src/-dash.txt"]),
        ("*.nothing", []),
        ("ignored/**", []),
        (".env", []),
    ],
)
def test_a_glob_limits_the_files(project: Path, file_pattern: str, files: list[str]) -> None:
    result = grep(project, "token", file_pattern, False, 10_000)
    assert list(dict.fromkeys(match.file for match in result.matches)) == files
    assert result.files_searched >= len(files)


def test_a_glob_that_can_match_nothing_is_an_error(project: Path) -> None:
    with pytest.raises(UsageError):
        grep(project, "token", "[", False, 50)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[invalid(", "unclosed character class"),
        ("(a", "unclosed group"),
        ("a{2,1}", "repetition"),
        ("*", "repetition operator"),
        (r"(?=a)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("a\nb", "within one line"),
        (r"a\nb", "within one line"),
        ("a\0b", "null byte"),
        ("a\udcffb", "UTF-8"),
        ("a\ud800b", "surrogates"),
        (r"\w{1000}", "too large"),
        ("((a{1,100}){1,100}){1,100}", "too large"),
        ("\\", "unclosed group|incomplete escape"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_an_error_with_a_reason(
    project: Path, pattern: str, reason: str
) -> None:
    for search in (
        lambda: grep(project, pattern, "", False, 50),
        lambda: grep_texts([("a.md", "text")], pattern, "", False, 50),
        lambda: grep_texts([], pattern, "", False, 50),
    ):
        with pytest.raises(InvalidPattern) as caught:
            search()
        assert caught.value.message == "Invalid regex pattern"
        assert caught.value.code == "INVALID_PATTERN"
        assert caught.value.details["pattern"] == pattern
        assert any(part in caught.value.details["reason"] for part in reason.split("|"))


def test_asking_for_a_nul_is_an_error(project: Path) -> None:
    with pytest.raises(InvalidPattern) as caught:
        grep(project, r"a\x00b", "", False, 50)
    assert "NUL" in caught.value.details["reason"]


@pytest.mark.parametrize("pattern", ["--token", "-e", "--files", "-", "--", "--pre=touch x"])
def test_a_pattern_may_begin_with_a_dash(project: Path, pattern: str) -> None:
    assert grep(project, pattern, "src/-dash.txt", False, 50).files_searched == 1


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        grep(tmp_path / "gone", "x", "", False, 50)


def test_an_ignore_file_above_counts_only_within_a_repository(tmp_path: Path) -> None:
    root = tmp_path / "repository" / "part"
    root.mkdir(parents=True)
    (root / "x.txt").write_text("token\n")
    (tmp_path / ".gitignore").write_text("*\n")
    assert grep(root, "token", "", False, 50).total_matches == 1
    (tmp_path / "repository" / ".gitignore").write_text("x.txt\n")
    assert grep(root, "token", "", False, 50).total_matches == 1
    (tmp_path / "repository" / ".git").mkdir()
    assert grep(root, "token", "", False, 50).total_matches == 0


def test_the_users_own_ripgrep_settings_do_not_count(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rc").write_text("--glob=!*\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert grep(project, "token", "", False, 50).total_matches > 0


def test_long_lines_are_cut_around_the_match(tmp_path: Path) -> None:
    line = "é" * 100_000 + "needle" + "x" * 100_000
    (tmp_path / "min.js").write_text(f"{line}\nneedle\n{line}\n{line}\n")
    first, second, third, _ = grep(tmp_path, "needle", "", False, 50).matches
    assert first.column == 100_001
    assert len(first.text) == TEXT_LENGTH + 2
    assert first.text.startswith("…é")
    assert "needle" in first.text
    assert first.text.endswith("x…")
    assert second.before == ["é" * CONTEXT_LENGTH + "…"]
    assert third.after == second.before


def test_a_match_at_either_end_of_a_long_line_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("start" + "-" * 5000 + "end\n")
    [start] = grep(tmp_path, "^start", "", False, 50).matches
    [end] = grep(tmp_path, "end$", "", False, 50).matches
    assert start.text == "start" + "-" * (TEXT_LENGTH - 5) + "…"
    assert end.text == "…" + "-" * (TEXT_LENGTH - 3) + "end"
    assert end.column == 5006


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_odd_names_are_searched_and_shown(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("token\n")
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    (tmp_path / "back\\slash.txt").write_text("token\n")
    (tmp_path / "line\nend.txt").write_text("token\n")
    files = [match.file for match in grep(tmp_path, "token", "", False, 50).matches]
    assert files == ["back\\slash.txt", "caf\\xe9.txt", "line\nend.txt"]
    json.dumps(files).encode()


def test_a_link_put_in_a_files_place_meanwhile_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("token inside\n")
    (tmp_path / "secret.txt").write_text("token outside\n")
    count = module.count_in_folder

    def count_then_swap(*arguments: Any, **options: Any) -> tuple[dict[str, int], bool]:
        counts = count(*arguments, **options)
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to(tmp_path / "secret.txt")
        return counts

    monkeypatch.setattr(module, "count_in_folder", count_then_swap)
    result = grep(root, "token", "", False, 50)
    assert result.matches == []


HOSTILE = [
    *("(a+)+$", "(a|a)*b", "(a*)*b", "(a|aa)+$", "(.*a){20}$", "(a?){50}a{50}", "([a-z]+)*[0-9]"),
    *(r"^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y", "[^b]*b|a", ".*.*=.*", "(.*)*x", r"(\w+\s?)+$"),
    *(r"\w*\d", "(([^b])+)+$", "a*?b", "(?s:.*)(?s:.*)z", r"\b(\w+)+\b!", "(a+)(a+)(a+)(a+)b"),
    *("[a-z]*[a-y]*[a-x]*1", "(^a|a$)+", ".{1000}b", r"(.|\w)*\W", "(?i)(A+)+$", "a.*b.*c.*d"),
    *(
        r"\B",
        "a|b|",
        "(a.{10,200}){3}z",
        r"[\s\S]{900}Q",
        "(?:a?){200}x",
        "a{1000}b",
        "(a{1,30}){1,30}b",
    ),
    *("((a{1,10}){1,10}){1,10}b", "(a{1,100}){1,100}b", "a{1000}{1000}", r"\w{1000}", r"\pL{500}"),
    *(r"\p{L}{1,300}\d", "(.{1,50}){1,50}X", "(((((a*)*)*)*)*)*b", "(a|b|ab)*c", "^(a?a?a?a?)*$"),
    *("x*" * 90, "(?:" * 60 + "a" + ")*" * 60),
]


def within(seconds: float, search: Any) -> Any:
    """What a search returns, unless it hangs."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(search())
        except InvalidPattern as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, "the search hangs"
    return results[0]


@pytest.fixture(scope="module")
def long_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("long")
    (root / "a.txt").write_text("a" * 1_000_000 + "\n")
    (root / "b.txt").write_text("aab " * 250_000 + "\n")
    return root


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_comes_to_an_end(long_lines: Path, pattern: str) -> None:
    result = within(HANG, lambda: grep(long_lines, pattern, "", False, 50))
    if isinstance(result, InvalidPattern):
        assert "too large" in result.details["reason"]
    else:
        assert result.files_searched == 2
        assert not result.truncated
        assert len(result.matches) == result.total_matches


def test_there_are_forty_hostile_patterns() -> None:
    assert len(HOSTILE) >= 40


def test_when_time_is_over_what_was_found_is_returned(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIME_LIMIT", 0.0)
    monkeypatch.setattr(module, "_REPLY_SECONDS", 0.0)
    assert grep(project, "token", "", False, 50).truncated
    assert grep_texts([("a.md", "token")], "token", "", False, 50).truncated


# Stored texts


def stored(root: Path) -> list[tuple[str, str]]:
    """The texts of a tree's UTF-8 files with plain line ends, as a database holds them."""
    paths = ["src/-dash.txt", "src/a.ts", "src/deep/er/b.py", "src/empty.txt", "src/main.ts"]
    return [(path, (root / path).read_text()) for path in paths]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_stored_texts_are_searched_like_files(project: Path, pattern: str) -> None:
    texts = stored(project)
    from_files = grep(project, pattern, "", False, 10_000)
    paths = [path for path, _ in texts]
    result = grep_texts(texts, pattern, "", False, 10_000)
    assert result.matches == [match for match in from_files.matches if match.file in paths]
    assert result.total_matches == len(result.matches)
    assert result.files_searched == len(texts)


def test_stored_texts_have_globs_limits_and_hidden_names(project: Path) -> None:
    texts = [*stored(project), (".env", "token"), ("x/id_rsa", "token")]
    everything = grep_texts(texts, "token", "", False, 10_000)
    assert not {match.file for match in everything.matches} & {".env", "x/id_rsa"}
    few = grep_texts(texts, "token", "**/*.ts", True, 3)
    assert [match.file for match in few.matches] == ["src/a.ts"] * 3
    assert few.total_matches == 30
    assert few.files_searched == 2


def test_stored_texts_may_be_more_than_one_batch(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = grep_texts(stored(project), "o", "", False, 10_000)
    monkeypatch.setattr(module, "_BATCH_BYTES", 100)
    assert grep_texts(stored(project), "o", "", False, 10_000) == whole
    assert grep_texts(stored(project), "o", "", False, 5).matches == whole.matches[:5]
    assert grep(project, "o", "", False, 5).matches == grep(project, "o", "", False, 9).matches[:5]


def test_a_pattern_as_large_as_allowed_is_placed_too(tmp_path: Path) -> None:
    """The second pass adds to the pattern: its limit must be higher than that of the first."""
    (tmp_path / "a.txt").write_text("x" * 50 + "\n")
    for count in range(10, 60):
        try:
            result = grep(tmp_path, rf"\w{{{count}}}", "", False, 50)
        except InvalidPattern:
            assert count > 15, REGEX_BYTES
            break
        assert len(result.matches) == result.total_matches == int(count <= 50)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory here")
def test_no_folder_for_temporary_files_is_needed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert grep(project, "nowhere", "src/main.ts", False, 5) == CodeMatches(
        matches=[], total_matches=0, files_searched=1, searched="disk"
    )
    assert "er/b.py" in list_files(project / "src" / "deep", hidden=False, skipped=[]).files
