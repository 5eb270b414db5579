"""Which files of a folder become documents, and how their bytes become text."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from support import ordinary_user, skip_without_git

from kb.disk import read as files, ripgrep
from kb.disk.read import MAXIMUM_DOCUMENT
from kb.disk.system import processor_seconds
from kb.errors import SourceError, UsageError
from kb.sources import folder as sources
from kb.sources.folder import SourceFile, SourceText


def write(root: Path, *paths: str, text: str = "# Title\n") -> None:
    for path in paths:
        location = root / path
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_text(text)


def fail_on_report(path: str, message: str) -> None:
    raise AssertionError(f"unexpected report: {path}: {message}")


def walked(root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[str]:
    """The paths of a walk that must report nothing."""
    return [file.path for file in sources.walk(root, include, exclude, report=fail_on_report)]


def walked_with_reports(root: Path) -> tuple[list[str], dict[str, str]]:
    reports: dict[str, str] = {}
    found = sources.walk(root, report=lambda path, message: reports.update({path: message}))
    return [file.path for file in found], reports


def read_bytes(folder: Path, data: bytes) -> SourceText:
    location = folder / "document.md"
    location.write_bytes(data)
    return sources.read(next(sources.walk(location, report=fail_on_report)))


# The walk


def test_documents_come_sorted_by_path_with_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, "b.md", "a/z.TXT", "a.rst", "a/b/c.mdx", "d.markdown", "logo.png", "Makefile")
    os.utime(tmp_path / "b.md", ns=(0, 1_234_567_890_123_456_700))
    found = list(sources.walk(tmp_path, report=fail_on_report))
    assert [file.path for file in found] == ["a.rst", "a/b/c.mdx", "a/z.TXT", "b.md", "d.markdown"]
    expected = (tmp_path / "b.md").stat()
    assert found[3] == SourceFile(
        *("b.md", tmp_path.resolve() / "b.md", expected.st_size, expected.st_mtime_ns),
        changed_ns=expected.st_ctime_ns,
        inode=expected.st_ino,
    )


SKIPPED = [
    *(".hidden.md", ".github/a.md", "x/.trash/a.md", ".obsidian/a.md", ".stversions/a.md"),
    *(".Trash-1000/files/a.md", ".cache/a.md", ".tox/py/a.md", ".recycle/a.md", ".terraform/a.md"),
    *("logseq/bak/a.md", ".#a.md", "x/~$a.md", ".venv/a.md", "venv/lib/a.md", "target/doc/a.md"),
    *("lib/site-packages/p/a.md", "node_modules/p/a.md", "__pycache__/a.md", ".context/a.md"),
]
REPOSITORIES = [f"x/{name}/a.md" for name in (".git", ".hg", ".svn", ".kb")]


def test_hidden_tool_trash_and_lock_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "bak/a.md", "x/logseq.md", *SKIPPED, *REPOSITORIES)
    for include in ([], ["**"], ["*"], ["**/*.md"], ["**/?*"], ["[.a-z]*/*.md", "*.md"]):
        assert walked(tmp_path, include) == ["a.md", "bak/a.md", "x/logseq.md"]


@pytest.mark.parametrize("path", SKIPPED)
def test_a_glob_that_names_a_hidden_or_tool_folder_opens_it(tmp_path: Path, path: str) -> None:
    write(tmp_path, "a.txt", *SKIPPED, *REPOSITORIES)
    assert walked(tmp_path, [path.replace("[", "\\[")]) == [path]


@pytest.mark.parametrize(
    ("include", "found"),
    [
        (".github", [".github/a.md"]),
        (".github/", [".github/a.md"]),
        (".git*/**", [".github/a.md"]),
        (".tox/**/*.md", [".tox/py/a.md"]),
        ("**/.trash/*.md", ["x/.trash/a.md"]),
        (".*", [".#a.md", ".hidden.md"]),
        (".*/**", [p for p in sorted(SKIPPED) if p.startswith(".") and "/" in p]),
        ("{venv,target}/**", ["target/doc/a.md", "venv/lib/a.md"]),
        (".git/**", []),
    ],
)
def test_what_a_glob_names_of_the_hidden(tmp_path: Path, include: str, found: list[str]) -> None:
    write(tmp_path, "a.txt", "venv/.cache/a.md", ".github/.cache/a.md", *SKIPPED, ".git/a.md")
    assert walked(tmp_path, [include]) == found


def test_a_link_opens_no_way_into_what_is_hidden_or_secret(tmp_path: Path) -> None:
    write(tmp_path, ".hidden/a.md", "venv/b.md", ".ssh/c.md", "id_rsa.txt")
    (tmp_path / "one.md").symlink_to(".hidden/a.md")
    (tmp_path / "two").symlink_to("venv")
    (tmp_path / "three.md").symlink_to(".ssh/c.md")
    (tmp_path / "four.md").symlink_to("id_rsa.txt")
    assert walked(tmp_path) == []


def test_an_empty_folder_has_no_documents(tmp_path: Path) -> None:
    assert walked(tmp_path) == []


def test_a_single_file_is_a_collection_of_one_whatever_its_suffix(tmp_path: Path) -> None:
    write(tmp_path, "notes.adoc", "other.md")
    assert walked(tmp_path / "notes.adoc") == ["notes.adoc"]
    assert walked(tmp_path / "notes.adoc", include=["*.md"], exclude=["*"]) == ["notes.adoc"]


def test_a_missing_root_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere: no such file.*Check the path"):
        sources.walk(tmp_path / "nowhere", report=fail_on_report)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs fifos")
def test_special_files_are_reported_and_never_opened(tmp_path: Path) -> None:
    write(tmp_path, "real.md")
    os.mkfifo(tmp_path / "fifo.md")
    (tmp_path / "link.md").symlink_to("fifo.md")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
        server.bind("socket.md")
        found, reports = walked_with_reports(tmp_path)
    assert found == ["real.md"]
    assert sorted(reports) == ["fifo.md", "link.md", "socket.md"]
    with pytest.raises(SourceError, match="neither a folder nor a regular file"):
        sources.walk(tmp_path / "fifo.md", report=fail_on_report)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs fifos")
def test_an_ignore_file_without_end_is_an_error_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.md")
    os.mkfifo(tmp_path / ".gitignore")
    monkeypatch.setattr(ripgrep, "SILENT_SECONDS", 0.2)
    with pytest.raises(SourceError, match=r"does not end; look for a \.gitignore"):
        sources.walk(tmp_path, report=fail_on_report)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_a_listing_that_is_at_work_is_told_from_one_that_waits() -> None:
    assert processor_seconds(os.getpid()) > ripgrep.AT_WORK_SECONDS
    assert processor_seconds(0) == 0.0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs fifos")
def test_a_file_that_became_a_fifo_or_link_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md", "c.md")
    fifo, link, gone = sources.walk(tmp_path, report=fail_on_report)
    for file in (fifo, link, gone):
        file.location.unlink()
    os.mkfifo(fifo.location)
    link.location.symlink_to("/etc/passwd")
    for file, message in ((fifo, "not a regular file"), (link, "b.md"), (gone, "it is gone")):
        with pytest.raises(SourceError, match=message):
            sources.read(file)


def test_a_folder_that_cannot_be_read_is_reported_and_the_rest_goes_on(open_folder: Path) -> None:
    write(open_folder, "open/a.md", "private/b.md", "listed/c.md", "z.md")
    (open_folder / "private").chmod(0)
    (open_folder / "listed").chmod(0o444)  # its names can be read, its files not
    with ordinary_user():
        found, reports = walked_with_reports(open_folder)
        with pytest.raises(SourceError, match=r"permission denied\. Check"):
            sources.walk(open_folder / "private", report=fail_on_report)
    (open_folder / "private").chmod(0o755)
    (open_folder / "listed").chmod(0o755)
    assert found == ["open/a.md", "z.md"]
    assert reports == {
        "listed/c.md": "skipped: permission denied",
        "private": "folder not read: permission denied",
    }


def test_a_file_that_cannot_be_read_is_an_error_that_says_what_to_do(open_folder: Path) -> None:
    write(open_folder, "a.md")
    (open_folder / "a.md").chmod(0)
    with ordinary_user():
        (file,) = sources.walk(open_folder, report=fail_on_report)
        with pytest.raises(SourceError) as caught:
            sources.read(file)
    assert caught.value.message == (
        "Cannot read a.md: permission denied. Allow reading it, or exclude it."
    )
    assert caught.value.as_result()["path"] == "a.md"


def test_an_ignore_file_that_cannot_be_read_is_reported(open_folder: Path) -> None:
    write(open_folder, "a.md", "docs/b.md", "docs/.gitignore")
    (open_folder / "docs/.gitignore").chmod(0)
    with ordinary_user():
        found, reports = walked_with_reports(open_folder)
    assert found == ["a.md", "docs/b.md"]
    assert reports == {"docs/.gitignore": "ignore file not used: permission denied"}


@pytest.mark.skipif(os.name != "posix" or os.uname().sysname == "Darwin", reason="needs raw names")
def test_names_that_are_no_utf8_come_as_text_that_can_be_stored(tmp_path: Path) -> None:
    write(tmp_path, "ok.md")
    folder = os.fsencode(tmp_path)
    os.mkdir(folder + b"/caf\xe9")
    for name in (b"/caf\xe9/a.md", b"/na\xefve.md", b"/na\xefve.png"):
        with open(folder + name, "wb"):
            pass
    found, reports = walked_with_reports(tmp_path)
    assert found == ["caf\\xe9/a.md", "na\\xefve.md", "ok.md"]
    assert reports == {}
    os.symlink(b"nowhere", folder + b"/l\xe9ft.md")
    assert list(walked_with_reports(tmp_path)[1]) == ["l\\xe9ft.md"]


def test_a_file_above_the_limit_is_reported_and_not_read(tmp_path: Path) -> None:
    for name, size in (("fits.md", MAXIMUM_DOCUMENT), ("large.md", MAXIMUM_DOCUMENT + 1)):
        with open(tmp_path / name, "wb") as stream:
            stream.truncate(size)  # a hole: takes no space
    found, reports = walked_with_reports(tmp_path)
    assert found == ["fits.md"]
    assert reports == {"large.md": "skipped: 20.0 MB is more than the limit of 20 MB"}


def test_a_file_that_outgrew_the_limit_since_the_walk_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "log.md")
    (file,) = sources.walk(tmp_path, report=fail_on_report)
    os.truncate(file.location, MAXIMUM_DOCUMENT + 1)
    with pytest.raises(SourceError, match="more than the limit"):
        sources.read(file)


def test_a_file_that_vanishes_during_the_walk_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.md", "b.md", "folder/c.md")

    class VanishingAfterwards:
        """A listing whose entries are removed from the disk when it is closed."""

        def __init__(self, folder: str) -> None:
            self._entries = list(real_scandir(folder))

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            return iter(self._entries)

        def __exit__(self, *_: object) -> None:
            (tmp_path / "a.md").unlink(missing_ok=True)
            (tmp_path / "folder/c.md").unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / "folder").rmdir()

        def close(self) -> None: ...

    real_scandir = os.scandir
    monkeypatch.setattr(sources.os, "scandir", VanishingAfterwards)
    found = [file.path for file in sources.walk(tmp_path, report=fail_on_report)]
    monkeypatch.undo()
    assert found == ["b.md"]


# Include and exclude


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["*.md"], [], ["a.md", "docs/b.md", "docs/sub/c.md"]),
        (["**/*.md"], [], ["a.md", "docs/b.md", "docs/sub/c.md"]),
        (["docs/*.md"], [], ["docs/b.md"]),
        (["docs/*"], [], ["docs/b.md", "docs/e.adoc"]),
        (["/*.md"], [], ["a.md"]),
        (["./docs/**"], [], ["docs/b.md", "docs/e.adoc", "docs/sub/c.md", "docs/sub/d.txt"]),
        (["docs/"], ["sub/"], ["docs/b.md", "docs/e.adoc"]),
        (["docs"], ["**/sub/**"], ["docs/b.md", "docs/e.adoc"]),
        (["*.adoc"], [], ["docs/e.adoc"]),
        (["*.adoc", "a.*"], [], ["a.md", "docs/e.adoc"]),
        (["*.{adoc,txt}"], [], ["docs/e.adoc", "docs/sub/d.txt"]),
        (["[b-c].md"], [], ["docs/b.md", "docs/sub/c.md"]),
        ([], ["*.md"], ["docs/sub/d.txt"]),
        ([], ["docs"], ["a.md"]),
        ([], ["docs/*"], ["a.md"]),
        ([], ["do*"], ["a.md"]),
        (["*.md"], ["docs/b.md", "sub"], ["a.md"]),
        (["nothing"], [], []),
    ],
)
def test_included_globs_are_joined_and_excluded_ones_win(
    tmp_path: Path, include: list[str], exclude: list[str], expected: list[str]
) -> None:
    write(tmp_path, "a.md", "docs/b.md", "docs/sub/c.md", "docs/sub/d.txt", "docs/e.adoc")
    assert walked(tmp_path, include, exclude) == expected


def test_marks_of_ignore_files_are_plain_letters_in_globs(tmp_path: Path) -> None:
    write(tmp_path, "#1.md", "!important.md", "other.md")
    assert walked(tmp_path, ["#1.md", "!*.md"]) == ["!important.md", "#1.md"]


@pytest.mark.parametrize("glob", ["", "[a.md", "docs\\"])
def test_a_glob_that_can_match_nothing_is_refused(tmp_path: Path, glob: str) -> None:
    with pytest.raises(UsageError, match="matches nothing"):
        walked(tmp_path, [glob])


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("typed", ["NFC", "NFD"])
def test_globs_and_ignore_files_fit_names_in_either_unicode_form(
    tmp_path: Path, on_disk: str, typed: str
) -> None:
    def stored(name: str) -> str:
        return unicodedata.normalize(on_disk, name)

    def pattern(name: str) -> str:
        return unicodedata.normalize(typed, name)

    write(tmp_path, stored("résumé/é.md"), stored("résumé/ö/ü.md"), stored("ñandú.md"))
    assert walked(tmp_path, [pattern("résumé/é.md")]) == [stored("résumé/é.md")]
    assert walked(tmp_path, exclude=[pattern("résumé")]) == [stored("ñandú.md")]
    write(tmp_path, stored("résumé/.gitignore"), text=pattern("ö/ü.md\n/é.md\n"))
    assert walked(tmp_path) == [stored("ñandú.md")]


# Links


def test_a_link_inside_the_root_adds_only_what_is_not_reached_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "real/b.md", "source/guide", "hidden/c.md", "hidden/deep/d.md")
    write(tmp_path, ".gitignore", text="/hidden/\n")
    (tmp_path / "0-same.md").symlink_to("a.md")
    (tmp_path / "0-same").symlink_to("real")
    (tmp_path / "guide.md").symlink_to("source/guide")
    (tmp_path / "guide-again.md").symlink_to("source/guide")
    (tmp_path / "shown").symlink_to("hidden", target_is_directory=True)
    (tmp_path / "zzz").symlink_to("shown/deep", target_is_directory=True)
    found = list(sources.walk(tmp_path, report=fail_on_report))
    assert [file.path for file in found] == [
        "a.md",
        "guide-again.md",
        "real/b.md",
        "shown/c.md",
        "shown/deep/d.md",
    ]
    assert sources.read(found[1]).text == "# Title\n"


def test_links_to_a_parent_or_to_themselves_make_no_loop(tmp_path: Path) -> None:
    write(tmp_path, "a/b/c.md")
    (tmp_path / "a/b/up").symlink_to("..", target_is_directory=True)
    (tmp_path / "a/root").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.md").symlink_to("self.md")
    found, reports = walked_with_reports(tmp_path)
    assert found == ["a/b/c.md"]
    assert list(reports) == ["self.md"]
    assert reports["self.md"].startswith("link not followed: ")


def test_links_that_leave_the_root_are_reported_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "proj/a.md", "proj_secret/b.md", "proj_secret/tool")
    root = tmp_path / "proj"
    (root / "file.md").symlink_to("../proj_secret/b.md")
    (root / "folder").symlink_to("../proj_secret", target_is_directory=True)
    (root / "parent").symlink_to("..", target_is_directory=True)
    (root / "absolute.md").symlink_to(tmp_path / "proj_secret/b.md")
    (root / "tool").symlink_to("../proj_secret/tool")  # would be no document anyway
    found, reports = walked_with_reports(root)
    assert found == ["a.md"]
    assert sorted(reports) == ["absolute.md", "file.md", "folder", "parent"]
    assert set(reports.values()) == {sources.LEADS_OUT}


def test_broken_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "gone.md").symlink_to("nowhere.md")
    found, reports = walked_with_reports(tmp_path)
    assert found == []
    assert reports == {"gone.md": "link not followed: no such file or directory"}


def test_a_link_opens_no_way_round_excluded_and_skipped_folders(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "secret/b.md", "node_modules/x/c.md")
    (tmp_path / "public.md").symlink_to("secret/b.md")
    (tmp_path / "open").symlink_to("secret", target_is_directory=True)
    (tmp_path / "modules").symlink_to("node_modules/x", target_is_directory=True)
    assert walked(tmp_path, exclude=["secret/"]) == ["a.md"]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path, "real/a.md")
    (tmp_path / "root").symlink_to("real", target_is_directory=True)
    (tmp_path / "file.md").symlink_to("real/a.md")
    assert walked(tmp_path / "root") == ["a.md"]
    assert walked(tmp_path / "file.md") == ["file.md"]


# Ignore files, compared with git


class Repository:
    """A folder and what git itself lists of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        run = subprocess.run(command, env=self._environment, capture_output=True, check=True)
        return run.stdout.decode()

    def documents(self, *arguments: str) -> list[str]:
        """The Markdown files that git does not ignore."""
        listed = self.git(
            "ls-files", "-z", "--cached", "--others", "--exclude-standard", *arguments
        )
        return sorted(path for path in listed.split("\0") if path.endswith(".md"))


@pytest.fixture(scope="module")
def git() -> None:
    skip_without_git()


@pytest.mark.usefixtures("git")
def test_ignore_files_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    folders = ["", "build/", "docs/", "docs/build/", "docs/api/v1/", "keep/", "logs/2024/", "x y/"]
    names = ["a.md", "b.md", "README.md", "draft-1.md", "draft-2.md", "#x.md", "!y.md", "tail .md"]
    write(tmp_path, *(folder + name for folder in folders for name in names))
    write(
        tmp_path,
        ".gitignore",
        text="# comment\n\nbuild/\n!build/a.md\n/b.md\nlogs/**\n!logs/2024/a.md\n"
        "draft-*.md   \n!draft-2.md\n\\#x.md\n\\!y.md\nkeep/*\n!keep/README.md\n"
        "docs/**/v1/b.md\n[unclosed\n!\n/\ntail\\ .md\r\n",
    )
    write(tmp_path, "docs/.gitignore", text="\ufeff!build/\nREADME.md\n/api/*/a.md\n*/b.md\n")
    write(tmp_path, "docs/build/.gitignore", text="*\n!*/\n!a.md\n")
    write(tmp_path, "x y/.gitignore", text="[!a].md\n?EADME.md\n")
    (tmp_path / ".git/info/exclude").write_text("draft-2.md\n")
    expected = repository.documents()
    assert 10 < len(expected) < len(folders) * len(names) / 2
    assert walked(tmp_path) == expected


@pytest.mark.usefixtures("git")
def test_a_folder_within_a_repository_obeys_the_ignore_files_above_it(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    write(tmp_path, *(f"a/b/{name}.md" for name in "123456"), "a/b/c/5.md", "a/b/c/6.md")
    write(tmp_path, ".gitignore", text="1.md\n/a/b/2.md\n4.md\n")
    write(tmp_path, "a/.gitignore", text="b/3.md\n!4.md\nb/c/5.md\n")
    (tmp_path / ".git/info/exclude").write_text("a/**/6.md\n")
    expected = repository.documents()
    assert expected == ["a/b/4.md", "a/b/5.md"]
    assert ["a/b/" + path for path in walked(tmp_path / "a/b")] == expected


@pytest.mark.usefixtures("git")
def test_a_worktree_obeys_the_exclude_file_of_its_repository(tmp_path: Path) -> None:
    write(tmp_path, "main/a.md")
    repository = Repository(tmp_path / "main")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    repository.git(*author, "commit", "--quiet", "--allow-empty", "-m", "start")
    repository.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    write(tmp_path / "tree", "private.md", "public.md")
    (tmp_path / "main/.git/info/exclude").write_text("private.md\n")
    assert walked(tmp_path / "tree") == ["public.md"]


SEGMENTS = st.sampled_from(
    ["a", "b", "ab", "x.md", "a.md", "*", "**", "?", "a*", "*.md", "[ab]", "[!a]", "a[!b]", "*b"]
)
LINES = st.builds(
    lambda negation, start, segments, end: negation + start + "/".join(segments) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(SEGMENTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
IGNORE_TEXTS = st.lists(LINES, max_size=5).map("\n".join)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, git: None) -> Repository:
    """Every combination of three folder names and two file names, three levels deep."""
    root = tmp_path_factory.mktemp("generated")
    folders = [""]
    for _ in range(3):
        folders += [folder + name for folder in folders for name in ("a/", "b/", "ab/")]
    write(root, *(folder + name for folder in set(folders) for name in ("a.md", "x.md")))
    return Repository(root)


@pytest.mark.slow
@given(top=IGNORE_TEXTS, below=IGNORE_TEXTS, deepest=IGNORE_TEXTS)
@settings(max_examples=60, deadline=None)
def test_any_set_of_rules_gives_what_git_gives(
    generated: Repository, top: str, below: str, deepest: str
) -> None:
    for folder, text in (("", top), ("a/", below), ("a/b/", deepest)):
        write(generated.root, folder + ".gitignore", text=text)
    assert walked(generated.root) == generated.documents()


def test_ignore_files_count_without_a_repository_and_dot_ignore_overrules(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md", "c.md", "sub/a.md", "sub/c.md")
    write(tmp_path, ".gitignore", text="a.md\nb.md\n")
    write(tmp_path, ".ignore", text="!b.md\nc.md\n")
    write(tmp_path, "sub/.ignore", text="!a.md\n")
    assert walked(tmp_path) == ["b.md", "sub/a.md"]


def test_an_ignore_file_that_is_a_link_counts(tmp_path: Path) -> None:
    write(tmp_path, "rules", "a.md", "b.md", text="a.md\n")
    (tmp_path / ".gitignore").symlink_to("rules")
    assert walked(tmp_path) == ["b.md"]


def test_an_ignore_file_that_is_no_utf8_still_counts(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "b.md")
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9.md\na.md\n")
    assert walked(tmp_path) == ["b.md"]


# Reading

GERMAN = "# Größe\n\nÜber Maß\n"
JAPANESE = "# 全文検索\n\n日本語のテスト\n"


@pytest.mark.parametrize("text", [GERMAN, JAPANESE, "# Title\n\nplain\n"])
@pytest.mark.parametrize(
    ("mark", "codec", "encoding"),
    [
        (b"", "utf-8", "utf-8"),
        (b"\xef\xbb\xbf", "utf-8", "utf-8-sig"),
        (b"\xff\xfe", "utf-16-le", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be", "utf-16-be"),
        (b"\xff\xfe\0\0", "utf-32-le", "utf-32-le"),
        (b"\0\0\xfe\xff", "utf-32-be", "utf-32-be"),
    ],
)
def test_unicode_encodings_are_recognised(
    tmp_path: Path, text: str, mark: bytes, codec: str, encoding: str
) -> None:
    data = mark + text.encode(codec)
    assert read_bytes(tmp_path, data) == SourceText(
        text, hashlib.sha256(data).digest(), encoding, ""
    )


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [GERMAN, JAPANESE])
def test_utf_16_without_a_mark_is_recognised_and_noticed(
    tmp_path: Path, codec: str, text: str
) -> None:
    source = read_bytes(tmp_path, text.encode(codec))
    assert (source.text, source.encoding) == (text, codec)
    assert "UTF-16" in source.notice


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("line_end", ["\r\n", "\r", "\n"])
def test_all_line_ends_become_newlines(tmp_path: Path, codec: str, line_end: str) -> None:
    data = line_end.join(["# Größe", "", "text", ""]).encode(codec)
    assert read_bytes(tmp_path, data).text == "# Größe\n\ntext\n"


def test_an_empty_file_is_empty_text(tmp_path: Path) -> None:
    assert read_bytes(tmp_path, b"").text == ""
    assert read_bytes(tmp_path, b"\xef\xbb\xbf").text == ""


def test_latin_1_is_read_with_a_notice(tmp_path: Path) -> None:
    source = read_bytes(tmp_path, GERMAN.encode("latin-1"))
    assert source.text == GERMAN
    assert (source.encoding, source.notice) == ("latin-1", "not UTF-8: read as Latin-1")


def test_quotes_and_dashes_of_windows_are_read_as_such(tmp_path: Path) -> None:
    text = "# “Größe” – 5 €\n"
    source = read_bytes(tmp_path, text.encode("windows-1252"))
    assert (source.text, source.encoding) == (text, "windows-1252")
    assert "Windows-1252" in source.notice
    undefined = read_bytes(tmp_path, "Größe ".encode("latin-1") * 20 + b"\x81")
    assert undefined.encoding == "latin-1"


def test_one_bad_byte_does_not_spoil_a_utf_8_file(tmp_path: Path) -> None:
    data = (JAPANESE * 3).encode()
    source = read_bytes(tmp_path, data + b"\xe6\n" + data)
    assert source.text == JAPANESE * 3 + "\ufffd\n" + JAPANESE * 3
    assert source.encoding == "utf-8"
    assert source.notice == "damaged UTF-8: unreadable bytes replaced, the first in line 10"


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0",
        b"text with a \0 in it",
        b"\0" * 100,
        bytes(range(1, 256)) * 4,
        b"\x01\x02\x03\x04\x05",
        b"\xff\xfe" + b"\x00\xd8",  # half a character
        "text with a \0 in it".encode("utf-16"),
        "odd length".encode("utf-16-le") + b"x",
        b"\x01\0\x02\0\x03\0\x04\0",
    ],
)
def test_binary_data_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceError, match=r"^Cannot read document\.md: .*, or exclude it\.$"):
        read_bytes(tmp_path, data)


@given(data=st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_text_that_sqlite_can_hold_or_a_clear_error(
    generated: Repository, data: bytes
) -> None:
    try:
        text = read_bytes(generated.root, data).text
    except SourceError:
        return
    text.encode()
    assert "\0" not in text
    assert "\r" not in text


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.md", text="old\n")
    (file,) = sources.walk(tmp_path, report=fail_on_report)
    calls: list[int] = []
    real_fstat = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:  # after the first read, before it is found steady
            file.location.write_text("new and longer\n")
        return real_fstat(descriptor)

    monkeypatch.setattr(files.os, "fstat", fstat)
    source = sources.read(file)
    monkeypatch.undo()
    assert source.text == "new and longer\n"
    assert source.content_hash == hashlib.sha256(b"new and longer\n").digest()
    assert len(calls) == 4
