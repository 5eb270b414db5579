"""The command line: what it prints, where, in which form, and its exit codes."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WINDROSE, Outcome, Run

from kb.open_file import ALIAS_FILES

COMMANDS = (
    "add sync reembed remove search list get outline section related recent cite graph "
    "eval serve tools tool status copy"
)


def is_one_error_line(outcome: Outcome) -> bool:
    lines = outcome.errors.splitlines()
    return outcome.out == "" and len(lines) == 1 and lines[0].startswith("kb")


# ---------------------------------------------------------------- use and errors


@pytest.mark.parametrize("command", ["", *COMMANDS.split()])
def test_every_command_has_help(command: str, run: Run) -> None:
    outcome = run(*command.split(), "--help")
    assert outcome.code == 0
    assert "--db PATH" in outcome.out


def test_kb_alone_prints_its_help(run: Run) -> None:
    assert run() == run("--help")
    assert run().code == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("serach wind", 'no command "serach": did you mean "search"?'),
        ("--db other.db --quiet serach wind", 'did you mean "search"?'),
        ("search wind --limt 3", "no option --limt: did you mean --limit?"),
        ("search wind --mustnot", "put -- before the query"),
        ("search wind --format jsn", 'did you mean "json"?'),
        ("list one two", '"two" is one argument too many'),
        ("--quiet", "name a command, such as `kb add FOLDER`"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(
    arguments: str, hint: str, filled: Run
) -> None:
    outcome = filled(*arguments.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert hint in outcome.errors
    as_json = filled("--json", *arguments.split())
    assert as_json.code == 2
    assert as_json.json["code"] == "VALIDATION_ERROR"
    assert hint in as_json.json["error"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("serve --db-folder files", "--db-folder is for a server over HTTP"),
        ("serve --access-log -", "--access-log is for a server over HTTP"),
        ("serve --http :0 --db-folder files --db kb.db", "give one of --db FILE"),
        ("serve --http :0 --db-folder files --replica copy", "leave out --db, --db-folder"),
        ("serve --replica copy --db kb.db", "leave out --db, --db-folder"),
        ("serve --replica copy --watch", "leave out --db, --db-folder"),
        ("serve --http :0 --log-queries", "--log-queries is for --access-log"),
        ("ui --http 0.0.0.0:0", "the page is for this machine alone"),
    ],
)
def test_what_makes_no_sense_together_is_refused_before_anything_is_served(
    arguments: str, why: str, run: Run
) -> None:
    outcome = run(*arguments.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert why in outcome.errors


@pytest.mark.parametrize(
    "arguments",
    [
        "quartz -line",
        "-line quartz",
        "quartz -line -n5",
        "-c docs quartz -n 5 -line",
        "quartz -c docs -line --format files",
        "quartz --limit=5 -line -c docs",
        "-- quartz -line",
    ],
)
def test_words_that_must_not_come_are_no_options(arguments: str, filled: Run) -> None:
    found = filled("--quiet", "search", *arguments.split())
    assert found.code == 0
    assert "sub dir.md" in found.out
    assert "wind.md" not in found.out
    assert "wind.md" in filled("search", "quartz").out


def test_a_word_that_begins_like_an_option_with_a_value_is_a_word(filled: Run) -> None:
    # Not the collection "ould".
    assert filled("search", "quartz", "-could", "-c", "docs").code == 0


def test_version_is_printed(run: Run) -> None:
    assert re.fullmatch(r"kb \d+\.\d+\.\d+\n", run("--version").out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--quiet"],
        ["frobnicate"],
        ["search"],
        ["search", "a", "-n", "0"],
        ["search", "a", "-n", "many"],
        ["search", "a", "--format", "xml"],
        ["search", "a", "--unknown"],
        ["outline", "wind.md", "--depth", "7"],
        ["add", "docs", "--kind", "other"],
        ["add", "docs", "--name", " "],
        ["get", "wind.md:0"],
        ["get", "wind.md:9"],
        ["get", "wind.md:3-2"],
        ["tool", "documents_search", "{"],
        ["tool", "documents_search", "[]"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], filled: Run) -> None:
    outcome = filled(*arguments)
    assert outcome.code == 2
    assert is_one_error_line(outcome)


@pytest.mark.parametrize("command", ["list", "search x", "get x", "status", "sync", "remove x"])
def test_without_a_file_it_is_said_how_to_make_one(command: str, run: Run, project: Path) -> None:
    outcome = run(*command.split())
    assert outcome.code == 3
    assert is_one_error_line(outcome)
    assert "kb add FOLDER" in outcome.errors
    assert not (project / ".kb").exists()


@pytest.mark.parametrize("command", ["add nowhere", "search x --from nowhere"])
def test_misspelt_folder_leaves_no_file_behind(command: str, run: Run, project: Path) -> None:
    outcome = run(*command.split())
    assert (outcome.code, outcome.errors) == (3, "kb: there is no folder or file nowhere\n")
    assert not (project / ".kb").exists()


@pytest.mark.parametrize(
    "command",
    [
        "add http://127.0.0.1:1/page",
        "add empty",
        "add docs --include *.mdd",
        "add docs --model no/such-model",
        "search x --from empty",
        "record password=3Tq8vLz0",
        "grep [",
        "tool no_such_tool {}",
        "merge nowhere.db",
    ],
)
@pytest.mark.parametrize("where", [".kb/kb.db", "some/where/new.db"])
def test_a_refused_command_leaves_nothing_that_it_made(
    command: str, where: str, run: Run, project: Path
) -> None:
    (project / "empty").mkdir()
    before = sorted(project.rglob("*"))
    assert run("--db", where, *command.split()).code != 0
    assert sorted(project.rglob("*")) == before


def test_a_link_to_a_withdrawn_file_stays(run: Run, project: Path) -> None:
    (project / "there").mkdir()
    link = project / "link.db"
    link.symlink_to("there/kb.db")
    assert run("--db", "link.db", "grep", "[").code != 0
    assert link.is_symlink()
    assert not list((project / "there").iterdir())


def test_what_others_put_beside_a_withdrawn_file_stays(run: Run, project: Path) -> None:
    (project / "empty").mkdir()
    (project / ".kb").mkdir()
    (project / ".kb" / "config.json").write_text("{}")
    assert run("add", "empty").code == 1
    assert (project / ".kb" / "config.json").exists()
    assert not (project / ".kb" / "kb.db").exists()


def test_the_file_itself_is_not_told_among_other_formats(run: Run, project: Path) -> None:
    (project / "docs" / "data.db").write_text("another file")
    told = run("--db", "docs/kb.db", "add", "docs", "--no-embed")
    assert (told.code, told.errors) == (
        0,
        "kb: docs: left out for their formats: 1 .db (--include takes any text files)\n",
    )


def test_what_is_not_found_is_exit_code_1_with_near_names(filled: Run) -> None:
    said = 'kb: No document has "zzzz".\nkb: nothing found\n'
    assert filled("search", "zzzz") == (1, "", said)
    outcome = filled("get", "wnd.md")
    assert outcome.code == 1
    assert is_one_error_line(outcome)
    assert "wind.md" in outcome.errors
    assert "Gusts" in filled("section", "wind.md", "Gust storm").errors
    assert 'Did you mean "docs"?' in filled("list", "doc").errors
    assert filled("remove", "doc").code == 1
    assert filled("outline", "sub dir.md").code == 1


def test_kind_stays_until_another_is_given(filled: Run) -> None:
    def kind() -> str:
        kinds: str = filled("list", "--json").json["collections"][0]["kind"]
        return kinds

    assert filled("add", "docs", "--kind", "archive", "--no-embed").code == 0
    assert (filled("add", "docs", "--no-embed").code, kind()) == (0, "archive")
    assert (filled("add", "docs", "--no-embed", "--kind", "documents").code, kind()) == (
        0,
        "documents",
    )


def test_globs_that_match_nothing_are_named(filled: Run) -> None:
    outcome = filled("add", "docs", "--include", "*.org", "--exclude", "old/**")
    assert outcome.code == 3
    assert "no matching file (only *.org; not old/**) that can be read, but the" in outcome.errors
    outcome = filled("add", "docs", "--name", "other", "--include", "*.org")
    assert (outcome.code, outcome.out) == (1, "other: nothing there, so nothing was added\n")
    assert "kb: other: no file matches (only *.org)" in outcome.errors
    # Also beside a link, which any glob might mean.
    Path("docs/out").symlink_to(Path.home(), target_is_directory=True)
    outcome = filled("add", "docs", "--name", "other", "--include", "[drafts]/**")
    assert outcome.code == 3
    assert "nothing was added: no file matches (only [drafts]/**); out: link not" in outcome.errors


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="no such device here")
def test_device_is_no_source(filled: Run) -> None:
    outcome = filled("add", "/dev/null")
    assert (outcome.code, outcome.errors) == (3, "kb: there is no folder or file /dev/null\n")


def test_words_without_quotes_are_one_query(filled: Run) -> None:
    assert filled("search", "gusts", "and", "storm") == filled("search", "gusts and storm")
    assert filled("recall", "gusts", "and") == filled("recall", "gusts and")


def test_nothing_found_by_grep_and_no_calls_are_said(filled: Run, project: Path) -> None:
    assert filled("grep", "no_such_words_anywhere") == (1, "", "kb: nothing found\n")
    assert filled("status", "--calls") == (1, "", "kb: no calls yet\n")


def test_malformed_pattern_is_wrong_use_with_its_reason(filled: Run) -> None:
    outcome = filled("grep", "(")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.errors.startswith("kb: Invalid regex pattern: unclosed group")


def test_error_is_a_json_document_when_json_is_wanted(filled: Run) -> None:
    outcome = filled("get", "wnd.md", "--json")
    assert outcome.code == 1
    assert outcome.json["code"] == "DOCUMENT_NOT_FOUND"
    assert outcome.errors


def test_unforeseen_failure_is_one_line(run: Run, project: Path) -> None:
    deep = "[" * 100_000
    outcome = run("tool", "documents_search", deep)
    assert outcome.code == 2
    assert is_one_error_line(outcome)
    assert "the arguments are not JSON: arrays and objects lie more than 100 deep" in outcome.errors


def test_interruption_is_one_line_and_exit_code_130(
    filled: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        def read(self, size: int | None = -1, /) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    outcome = filled("tool", "documents_search", "-")
    assert outcome.code == 130
    assert outcome.errors == "kb: interrupted; what was done is kept\n"


def test_global_options_stand_before_or_after_the_command(filled: Run, tmp_path: Path) -> None:
    assert filled("--json", "list") == filled("list", "--json")
    for arguments in (["--db", "other.db", "list"], ["list", "--db", "other.db"]):
        assert "other.db" in filled(*arguments).errors
    assert filled("--quiet", "sync", "--no-embed") == (0, "", "")
    assert filled("sync", "--no-embed", "--quiet") == (0, "", "")
    assert filled("--json", "--quiet", "sync", "--no-embed").json["embedded"] == 0


@pytest.mark.parametrize("variable", ["KB_DB", "SEARCH_DB_PATH"])
def test_file_is_named_by_the_environment(
    variable: str, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(project / "elsewhere" / "my.db"))
    run("add", "docs", "--no-embed")
    assert (project / "elsewhere" / "my.db").exists()
    assert run("list").lines[0].startswith("docs\t4")


def test_file_of_the_project_is_found_from_a_folder_inside(
    filled: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "docs" / "guide")
    assert filled("list").lines[0].startswith("docs\t4")
    assert filled("search", "marble", "--format", "files").out == "rain.md\n"
    assert filled("get", "rain.md:1").out == "# Rain\n"


# ---------------------------------------------------------------- filling the file


def test_adding_says_what_was_done(run: Run) -> None:
    assert run("add", "docs", "--no-embed").out == "docs: 4 added (4 documents)\n"
    assert run("add", "docs", "--no-embed").out == "docs: 4 unchanged (4 documents)\n"


def test_several_sources_become_a_collection_each(run: Run, project: Path) -> None:
    for folder in ("manual", "other/docs"):
        (project / folder).mkdir(parents=True)
        (project / folder / "pump.md").write_text("# Pump\n\nfeldspar\n")
    outcome = run(
        "add", "docs", "--no-embed", "manual", "--exclude", "x/**", "other/docs", "manual/"
    )
    assert (outcome.code, outcome.lines) == (
        0,
        [
            "docs: 4 added (4 documents)",
            "manual: 1 added (1 document)",
            "docs-2: 1 added (1 document)",
        ],
    )
    again = run("add", "docs", "manual", "--no-embed", "--json").json["collections"]
    assert [(row["collection"], row["unchanged"]) for row in again] == [("docs", 4), ("manual", 1)]
    assert run("sync", "manual", "docs-2", "--no-embed").code == 0


def test_of_several_sources_none_is_added_where_one_cannot_be(run: Run, project: Path) -> None:
    (project / "manual").mkdir()
    for arguments, code, said in (
        (["docs", "manaul"], 3, "manaul"),
        (["docs", "manual", "--name", "x"], 2, "--name is for one collection"),
        (["docs", "manual", "--description", "x"], 2, "--description is for one collection"),
    ):
        outcome = run("add", *arguments, "--no-embed")
        assert outcome.code == code
        assert said in outcome.errors
        assert not (project / ".kb").exists()
    outcome = run("add", "docs", "manual", "--no-embed")
    assert (outcome.code, outcome.lines) == (
        1,
        ["docs: 4 added (4 documents)", "manual: nothing there, so nothing was added"],
    )


def test_a_source_that_cannot_be_read_keeps_no_other_from_being_added(
    run: Run, project: Path
) -> None:
    (project / "broken.tar.gz").write_bytes(b"no bundle")
    outcome = run("add", "broken.tar.gz", "docs", "--no-embed")
    assert (outcome.code, outcome.lines[-1]) == (3, "docs: 4 added (4 documents)")
    assert "broken.tar.gz" in outcome.errors
    assert [line.split("\t")[0] for line in run("list").lines] == ["docs"]


def test_one_file_can_be_added(run: Run, project: Path) -> None:
    assert run("add", "docs/wind.md", "--no-embed").out == "wind.md: 1 added (1 document)\n"
    assert run("get", "docs/wind.md:3").out == "quartz line\n"
    assert run("get", str(project / "docs" / "wind.md:3")).out == "quartz line\n"
    assert run("search", "quartz", "--format", "files").out == "docs/wind.md\n"


def test_adding_again_with_other_globs_changes_what_is_in(run: Run) -> None:
    run("add", "docs", "--no-embed")
    assert run("add", "docs", "--include", "guide/*.md", "--no-embed").out == (
        "docs: 1 removed, 3 unchanged (3 documents)\n"
    )
    assert "3 unchanged" in run("add", "docs", "--no-embed").out
    again = run("add", "docs", "--include", "**/*.md", "--exclude", "guide/**", "--no-embed")
    assert again.out == "docs: 1 added, 3 removed (1 document)\n"
    assert run("list", "docs").lines[0].startswith("wind.md\t")


def test_description_can_be_added_later(run: Run) -> None:
    run("add", "docs", "--no-embed", "--include", "wind.md")
    run("add", "docs", "--no-embed", "--description", "All about wind")
    (row,) = run("list", "--json").json["collections"]
    assert (row["description"], row["documentCount"]) == ("All about wind", 1)


def test_name_that_is_taken_is_refused(filled: Run, project: Path) -> None:
    (project / "other" / "docs").mkdir(parents=True)
    (project / "other" / "docs" / "x.md").write_text("# X")
    outcome = filled("add", "other", "--name", "docs", "--no-embed")
    assert outcome.code == 2
    assert is_one_error_line(outcome)
    assert str(project / "docs") in outcome.errors
    # The folder's own name is only a proposal.
    assert filled("add", "other/docs", "--no-embed").out.startswith("docs-2: 1 added")


def test_collection_that_is_filled_by_calls_is_not_taken_over(filled: Run, project: Path) -> None:
    from kb.store.database import Database

    with Database(project / ".kb" / "kb.db") as database, database.write() as connection:
        connection.apsw.execute(
            "INSERT INTO collections (name, kind, created_at) VALUES ('mine', 'index', '')"
        )
    outcome = filled("add", "docs", "--name", "mine", "--no-embed")
    assert outcome.code == 2
    assert "filled by tool calls" in outcome.errors


def test_sync_of_a_folder_that_is_gone_keeps_the_documents(filled: Run, project: Path) -> None:
    (project / "docs").rename(project / "moved")
    outcome = filled("sync", "--no-embed")
    assert outcome.code == 3
    assert "Traceback" not in outcome.errors
    assert len(filled("list", "docs").lines) == 4


def test_removed_collection_is_gone_and_its_folder_stays(filled: Run, project: Path) -> None:
    assert filled("remove", "docs").out == "removed docs with 4 documents\n"
    outcome = filled("list")
    assert (outcome.code, outcome.out) == (1, "")
    assert "kb add FOLDER" in outcome.errors
    assert (project / "docs" / "wind.md").exists()
    assert filled("sync").code == 2


def test_copy_is_a_file_of_its_own(filled: Run, project: Path) -> None:
    assert filled("copy", "copy.db").out.startswith("copy.db (")
    assert filled("--db", "copy.db", "list", "docs").lines == filled("list", "docs").lines
    (project / "folder").mkdir()
    assert filled("copy", "folder").out.startswith("folder/kb.db (")
    for destination in ("copy.db", "no/such/folder.db"):
        outcome = filled("copy", destination)
        assert outcome.code == 3
        assert is_one_error_line(outcome)


def test_status_tells_sizes_and_what_waits(filled: Run) -> None:
    outcome = filled("status")
    assert "4 documents" in outcome.out
    assert "run `kb sync`" in outcome.out
    facts = filled("status", "--json").json
    assert facts["documents"] == 4
    assert facts["waiting"] == facts["chunks"]
    assert facts["collections"][0]["collection"] == "docs"


# ---------------------------------------------------------------- browsing


def test_lists_are_tab_separated_in_a_pipe(filled: Run, project: Path) -> None:
    assert filled("list").out == f"docs\t4\tdocuments\t{project / 'docs'}\t\n"
    assert filled("list", "docs").lines[-1] == "wind.md\tWind\t36"
    assert filled("list", "docs", "--json").json["total"] == 4


@pytest.mark.parametrize(
    "name",
    [
        "wind.md",
        "docs/wind.md",
        "docs:wind.md",
        "./docs/wind.md",
        "docs/../docs/wind.md",
        "manual/wind.md",
    ],
)
def test_document_is_named_loosely(name: str, filled: Run, project: Path) -> None:
    (project / "kb.json").write_text('{"collections": {"manual": "docs"}}')
    assert filled("get", name).out == "# Wind\n\nquartz line\n\n## Gusts\n\nblow\n"
    assert filled("get", f"{name}:3").out == "quartz line\n"
    assert filled("get", f"{name}:3-5").out == "quartz line\n\n## Gusts\n"
    assert filled("get", f"{name}:5-").out == "## Gusts\n\nblow\n"


@pytest.mark.parametrize("file", ["kb.json", "context.json", "package.json", ".kb/config.json"])
@pytest.mark.parametrize("content", ["[1,2]", "{oops", "", "[" * 50_000])
def test_no_broken_file_of_a_project_ends_a_command(
    file: str, content: str, filled: Run, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / file).write_text(content)
    found = filled("search", "marble", "--format", "files")
    assert (found.code, found.out) == (0, "docs/guide/rain.md\n")
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [str(project / file) in text for text in told] == [True] * (file in ALIAS_FILES)
    assert filled("get", "wind.md:1").out == "# Wind\n"
    assert filled("sync", "--no-embed", "--quiet").code == 0
    assert filled("tool", "read_file", '{"path": "docs/wind.md", "includeDeps": true}').code == 0


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("rain.md", "Rain"),
        ("sub dir.md", "A space"),
        ("docs/guide/sub dir.md", "A space"),
        ("caf\u00e9 漢字.md", "Café"),
        ("cafe\u0301 漢字.md", "Café"),
        ("docs/guide/cafe\u0301 漢字.md", "Café"),
    ],
)
def test_names_with_spaces_and_accents_are_found(name: str, title: str, filled: Run) -> None:
    assert filled("get", name, "--json").json["title"] == title
    assert filled("get", f"{name}:1", "--json").json["title"] == title


def test_name_of_several_documents_is_refused_with_choices(filled: Run, project: Path) -> None:
    (project / "docs" / "other").mkdir()
    shutil.copy(project / "docs" / "guide" / "rain.md", project / "docs" / "other" / "rain.md")
    filled("sync", "--no-embed")
    outcome = filled("get", "rain.md")
    assert outcome.code == 2
    assert "docs/guide/rain.md, docs/other/rain.md" in outcome.errors
    assert filled("get", "guide/rain.md").code == 0


def test_outline_and_sections_are_printed(filled: Run) -> None:
    assert filled("outline", "wind.md").out == "     1  Wind\n     5    Gusts\n"
    assert filled("outline", "wind.md", "--depth", "1").out == "     1  Wind\n"
    assert filled("section", "wind.md", "gusts").out == "## Gusts\n\nblow\n"
    alone = filled("section", "wind.md", "wind", "--no-subsections")
    assert alone.out == "# Wind\n\nquartz line\n"
    assert filled("section", "wind.md", "Wind > Gusts", "--json").json["startLine"] == 5


def test_related_without_vectors_says_what_to_do(filled: Run) -> None:
    outcome = filled("related", "wind.md")
    assert (outcome.code, outcome.out) == (1, "")
    assert "kb sync" in outcome.errors


def test_recent_lists_new_documents_and_what_was_read(filled: Run, project: Path) -> None:
    (project / "docs" / "old.md").write_text("---\ndate: 2001-02-03\n---\n# Old\n")
    (project / "docs" / "new.md").write_text("---\ndate: 2031-02-03\n---\n# New\n")
    filled("sync", "--no-embed")
    filled("tool", "read_file", '{"path": "docs/wind.md"}')
    lines = filled("recent", "-n", "1").lines
    assert lines[0] == "new\t2031-02-03\tdocs/new.md\tNew"
    assert re.fullmatch(r"read\t\d{4}-\S+Z\tdocs/wind\.md\t", lines[1])
    result = filled("recent", "--json").json
    assert [row["id"] for row in result["documents"]][:1] == ["new.md"]
    assert [row["id"] for row in result["documents"]][-1:] == ["old.md"]
    assert [(row["path"], row["reads"]) for row in result["read"]] == [("docs/wind.md", 1)]


# ---------------------------------------------------------------- search


def test_search_prints_place_heading_and_text(filled: Run) -> None:
    outcome = filled("search", '+"quartz line"')
    assert outcome.code == 0
    assert re.fullmatch(r"docs/wind\.md:1-3  0\.\d\d  Wind\n    quartz line\n", outcome.out)
    assert outcome.errors == ""  # what is asked exactly needs no model
    assert "no embeddings yet" in filled("search", "quartz line").errors


def test_search_takes_queries_that_begin_with_a_sign(filled: Run) -> None:
    assert filled("search", "--", "-blow quartz").code == 0
    assert filled("search", "+全文検索", "--format", "files").lines == ["docs/guide/café 漢字.md"]
    assert filled("search", "").code == 1


def test_search_formats(filled: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(filled("search", "quartz", "--format", "csv").out)))
    assert {row["documentId"] for row in rows} == {"wind.md", "guide/sub dir.md"}
    found = filled("search", "quartz", "--format", "json").json["results"]
    assert [row["content"] for row in found] == [row["content"] for row in rows]
    assert filled("search", "quartz", "--json").json["results"] == found
    assert set(filled("search", "quartz", "--format", "files").lines) == {
        "docs/wind.md",
        "docs/guide/sub dir.md",
    }
    markdown = filled("search", "gauge", "--format", "md").out
    assert markdown.startswith("## Rain\n\n`docs/guide/rain.md:1-3` · 0.")
    assert markdown.endswith("\n\n# Rain\n\nmarble gauge\n\n")
    assert filled("search", "zzzz", "--json").json["results"] == []


def test_search_from_a_folder_adds_it_first(run: Run) -> None:
    outcome = run("search", "marble", "--from", "docs", "--no-embed", "--format", "files")
    assert (outcome.code, outcome.out) == (0, "docs/guide/rain.md\n")
    assert outcome.errors.startswith("kb: docs: 4 added (4 documents)\n")
    again = run("search", "marble", "--from", "docs", "--no-embed", "--format", "files", "--quiet")
    assert again.out == "docs/guide/rain.md\n"
    assert "added" not in again.errors


def test_search_explains_its_order(embedded: Run) -> None:
    outcome = embedded("search", "E417", "--explain", "-n", "3")
    assert (
        len(re.findall(r"keyword rank [\d-]+, vector rank [\d-]+, distance 0\.\d+", outcome.out))
        == 3
    )
    row = embedded("search", "E417", "--explain", "--json", "-n", "1").json["results"][0]
    assert row["keywordRank"] in (1, 2, 3)
    assert "what the query's words tell" in row["why"]
    assert re.search(r"its meaning is (very near|near|somewhat near|far) \(0\.\d\d\)", row["why"])


@pytest.mark.parametrize("query", ["+vane", '"wind vane"', "+vane +wind"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_asks_for_words_alone_is_explained_by_them(
    query: str, form: list[str], embedded: Run
) -> None:
    out = embedded("search", query, "--explain", "-n", "2", *form).out
    assert out.count("judged by words alone") == 2
    assert not re.search("has no vector|its meaning|unknown", out)


def test_a_passage_without_vector_is_explained_so_only_where_others_have_one(
    embedded: Run, project: Path
) -> None:
    embedded("add", "docs", "--no-embed", "--quiet")
    (row,) = embedded("search", "quartz vane", "-c", "docs", "--explain", "--json", "-n", "1").json[
        "results"
    ]
    assert "judged by words alone" in row["why"]
    assert "no vector" not in row["why"]
    rows = embedded("search", "quartz vane", "--explain", "--json").json["results"]
    of_docs = [row["why"] for row in rows if row["collection"] == "docs"]
    assert of_docs
    assert all("has no vector yet" in why for why in of_docs)


def test_text_cannot_steer_the_terminal(run: Run, project: Path) -> None:
    (project / "docs" / "evil.md").write_text(
        "# \x1b[2JTitle\n\nquicksilver \x1b]0;owned\x07 text\n"
    )
    run("add", "docs", "--no-embed")
    for arguments in (["search", "quicksilver"], ["list", "docs"]):
        assert "\x1b" not in run(*arguments).out


# ---------------------------------------------------------------- tools


def test_tools_are_listed(run: Run) -> None:
    names = [line.split("\t")[0] for line in run("tools").lines]
    assert "documents_search" in names
    assert [tool["name"] for tool in run("tools", "--json").json["tools"]] == names


def test_tool_is_called_as_a_client_calls_it(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = filled("tool", "documents_list_documents", '{"collection": "docs", "limit": 1}')
    assert outcome.code == 0
    assert outcome.json["documents"] == [{"id": "guide/café 漢字.md", "title": "Café", "size": 20}]
    assert "漢字" in outcome.out
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"collection": "docs"}'))
    assert filled("tool", "documents_list_documents", "-").json["total"] == 4
    assert filled("tool", "documents_list_collections").code == 0


def test_tool_that_fails_prints_its_result_and_is_exit_code_1(filled: Run) -> None:
    for name, arguments in (("documents_search", "{}"), ("documents_serach", "{}")):
        outcome = filled("tool", name, arguments)
        assert outcome.code == 1
        assert outcome.json["code"] == "VALIDATION_ERROR"


def test_reply_of_a_tool_is_bounded_by_option(filled: Run) -> None:
    arguments = ("tool", "documents_list_documents", '{"collection": "docs"}')
    assert filled(*arguments, "--max-reply-tokens", "20").json["truncated"]


# ---------------------------------------------------------------- as a process


def process(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "kb", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        **more,
    )


def test_reader_that_stops_early_is_no_error(filled: Run) -> None:
    for arguments in (["list", "docs"], ["search", "quartz"], ["get", "wind.md"]):
        with process(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
            assert popen.stdout is not None
            popen.stdout.close()
            assert popen.stderr is not None
            said = popen.stderr.read()
            assert said == b"" or said.startswith(b"kb: There are no embeddings yet")
        assert popen.returncode == 0


def test_encoding_without_the_letters_is_no_error(
    filled: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with process("list", "docs", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
        out, errors = popen.communicate()
    assert (popen.returncode, errors) == (0, b"")
    assert b"\\u6f22" in out


def test_corpus_of_the_readme_is_the_one_tested() -> None:
    assert len([path for path in WINDROSE.rglob("*") if path.is_file()]) == 35


def test_external_docs_added_by_hand_are_listed_and_searched(tmp_path: Path, run: Run) -> None:
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual" / "pump.md").write_text("# Pump\n\nPrime the pump with water.\n")
    assert run("add", str(tmp_path / "manual"), "--kind", "external", "--no-embed").code == 0
    assert "manual" in run("list").out
    assert "pump.md" in run("search", "prime the pump").out


def test_knowledge_that_is_nowhere_else_is_removed_only_on_demand(filled: Run) -> None:
    assert filled("record", "We decided to keep one file.", "--quiet").code == 0
    refused = filled("remove", "discoveries")
    assert refused.code == 2
    assert "`kb copy`" in refused.errors
    assert "one file" in filled("recall").out
    assert filled("remove", "discoveries", "--force").code == 0


def test_bytes_that_are_no_text_are_no_text_of_a_discovery(filled: Run) -> None:
    assert filled("record", "We keep one file \udc8a.", "--source", "talk \udc8a").code == 0
    assert "talk \\x8a" in filled("recall", "--json").out.replace("\\\\", "\\")


def test_a_folder_is_not_added_twice_under_two_names(filled: Run) -> None:
    refused = filled("add", "docs", "--name", "again", "--no-embed")
    assert refused.code == 2
    assert "already" in refused.errors
    assert filled("add", "docs", "--name", "text", "--include", "*.md", "--no-embed").code == 0


def test_a_folder_that_is_a_projects_docs_can_be_a_collection_too(
    filled: Run, project: Path
) -> None:
    (project / ".kb" / "config.json").write_text(
        '{"project_name": "weather", "external_docs": {"path": "./manual"}}'
    )
    (project / "manual").mkdir()
    (project / "manual" / "pump.md").write_text("# Pump\n\nPrime it with water.\n")
    assert filled("tool", "activate_project", "{}").code == 0
    assert filled("add", "manual", "--no-embed").out == "manual: 1 added (1 document)\n"


def test_a_tool_answers_in_json_where_the_file_is_damaged(filled: Run, project: Path) -> None:
    (project / ".kb" / "kb.db").write_bytes(b"no database at all")
    outcome = filled("tool", "documents_list_collections")
    assert (outcome.code, outcome.json["code"]) == (1, "DATABASE_ERROR")
    outcome = filled("tool", "search_external_docs", '{"query": "wind"}')
    assert (outcome.code, outcome.json["error"], outcome.json["code"]) == (
        1,
        True,
        "DATABASE_ERROR",
    )
    assert "damaged" in outcome.json["message"]
