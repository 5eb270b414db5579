"""Every tool answers over a cut file as over the whole one, in process and on workers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import ROOT, WINDROSE

from kb.cli import commands
from kb.cli.main import main
from kb.library.browsing import hashes_of_documents
from kb.library.opening import on_database
from kb.library.overview import list_everything, view_document
from kb.models.english import EnglishEmbedder
from kb.server.features import read_resource
from kb.settings import database_paths
from kb.store.database import AttachedFiles, Database
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session

BATTERY = {"collection": "book", "document": "how-to/replace-the-battery.md"}
WIND = {"collection": "docs", "document": "guide/wind.md"}
CITED = {"includeCitations": True, "citationDepth": 3}


class Case(NamedTuple):
    tool: str
    arguments: dict[str, Any]


CASES = [
    Case("documents_list_collections", {}),
    Case("documents_list_documents", {"collection": "book", "limit": 7, "offset": 5}),
    Case("documents_list_documents", {"collection": "research", "sort": "date"}),
    Case("documents_search", {"query": "what happens when the battery is low?", "limit": 5}),
    Case("documents_search", {"query": '"wind speed"', "limit": 5}),
    Case("documents_search", {"query": "batery", "collections": ["book"], "limit": 3}),
    Case("documents_search", {"query": "wind", "paths": ["guide/**"], "maxPerDocument": 1}),
    Case("documents_search", {"query": "wind", "collections": ["nothing of the kind"]}),
    Case("documents_search_batch", {"queries": [{"query": "rain gauge"}, {"query": "solder"}]}),
    Case("documents_get_document", {**BATTERY, "startLine": 3}),
    Case("documents_get_document", {**WIND, "document": "guide/wnd.md"}),
    Case("documents_get_outline", WIND),
    Case("documents_get_section", {**BATTERY, "section": "old cell"}),
    Case("documents_get_section", {**BATTERY, "section": "nothing of the kind"}),
    Case("documents_context", {"query": "rain gauge"}),
    Case("documents_find_related", WIND),
    Case("documents_find_related", {**BATTERY, "chunk": "how long the cell lasts"}),
    Case("search_index", {"query": "vane"}),
    Case("search_index", {"query": "+station", "index_name": "plans"}),
    Case("searchLocalArchives", {"query": "machine learning"}),
    Case("searchLocalArchives", {"query": "learning", **CITED}),
    Case("searchLocalArchives", {"query": "lerning", **CITED}),
    Case("searchLocalArchives", {"query": "nothingofthekind"}),
    Case("context_search", {"query": "authentication"}),
    Case("context_search", {"query": "level", "module": "gauge"}),
    Case("read_file", {"path": "docs/guide/wind.md", "endLine": 3}),
    Case("grep_codebase", {"pattern": "anemometer"}),
]
# What writes goes to the file here, the first shard; each is read again by what follows.
WRITES = [
    Case("search_index", {"query": "vane", "index_name": "docs"}),
    Case("search_index", {"query": "vane", "index_name": "plan"}),
    Case("search_create_index", {"index_name": "docs"}),
    Case("search_create_index", {"index_name": "log"}),
    Case("search_add_document", {"doc_id": "a", "content": "Hoarfrost.", "index_name": "log"}),
    Case("search_add_document", {"doc_id": "a", "content": "# Hail", "index_name": "log"}),
    Case("search_add_document", {"doc_id": "notes/frost.md", "content": "Frost at night."}),
    Case("search_index", {"query": "hail", "index_name": "log"}),
    Case("search_index", {"query": "frost"}),
    Case("context_record", {"content": "We chose a lead battery", "module": "power"}),
    Case("context_search", {"query": "which battery was chosen?", "module": "power"}),
    Case("activate_project", {}),
    Case("search_external_docs", {"query": "how is a request authenticated?"}),
    Case("documents_list_collections", {}),
]
# Scores know what all files hold, but each shard has its own candidates; times and ids are new.
APART = {"score", "relevanceScore", "relevance_score", "searchTime", "nearest", "confidence"}
APART |= {"id", "token", "created", "lastRead", "embedded", "reused"}
# In which near scores may change places.
RANKED = {"documents_search", "documents_search_batch", "documents_find_related", "search"}

NAME = "how-to/replace-the-battery.md"
COMMANDS = [
    ("search", "rain gauge", "-n", "4"),
    ("list",),
    ("list", "docs"),
    ("list", "nothing of the kind"),
    ("recent",),
    ("context", "rain gauge"),
    ("get", f"{NAME}:3-9", "wind.md:1"),
    ("get", "guide/wnd.md"),
    ("outline", "guide/wind.md"),
    ("section", NAME, "old cell"),
    ("related", NAME),
    ("cite", "guide/wind.md", "--depth", "3"),
    ("cite", "how-to/calibrate the vane.md"),
    ("graph",),
    ("graph", "guide/wind.md", "--depth", "2"),
    ("graph", "--format", "mermaid"),
    ("graph", "--broken"),
    ("graph", "--broken", "-c", "docs"),
    ("grep", "anemometer"),
    ("recall",),
    ("recall", "authentication"),
    ("token", "list"),
    ("status", "--calls"),
    # What follows writes.
    ("sync",),
    ("sync", "research", "--force"),
    ("search", "hygrometer", "--from", "more", "-n", "6"),
    ("sync", "more"),
    ("list",),
    ("record", "Decided to paint the mast white", "--module", "mast"),
    ("recall", "what colour is the mast?"),
    ("forget", "nothing of the kind"),
    ("add", "other", "--name", "other"),
    ("graph", "--broken", "-c", "other"),
    ("move", "other", "moved"),
    ("remove", "default", "notes/frost.md"),
    ("remove", "other"),
    ("token", "add", "anna"),
    ("sync",),
    ("reembed",),
    ("list", "docs"),
    ("remove", "research"),
    ("list",),
]
# These tell of each file by itself, or name it: `status`, `doctor`, `datasette`, `copy`, `split`,
# `merge`, `trust`, `replicate`, `restore` (`test_cut.py` has most of them). `serve` and `ui` are
# servers; `eval` asks the same search; the rest open no file.
OF_FILES = set("status doctor datasette copy split merge trust replicate restore".split())
OTHERS = set("serve ui eval tools tool install uninstall pack completion".split())


def bare(value: Any, *, is_ranked: bool = False) -> Any:
    """A reply without what may differ."""
    if isinstance(value, dict):
        is_document = {"title", "label"} & value.keys()  # whose id is a name
        kept = value.keys() - APART | ({"id"} & value.keys() if is_document else set())
        part = {key: bare(value[key], is_ranked=is_ranked) for key in sorted(kept)}
        return {**part, **({"date": value["date"][:10]} if "date" in value else {})}
    if isinstance(value, list):
        parts = [bare(part, is_ranked=is_ranked) for part in value]
        return sorted(parts, key=json.dumps) if is_ranked else parts
    return value


def reply(session: Session, case: Case) -> Any:
    result = call_tool(session, case.tool, case.arguments)
    content = bare(result.content, is_ranked=case.tool in RANKED)
    assert content.get("code") != "INTERNAL_ERROR"
    return result.is_error, content


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: EnglishEmbedder) -> Path:
    """A project whose file is there whole, and cut into three."""
    root = tmp_path_factory.mktemp("cut")
    for source in (WINDROSE, *(ROOT / "fixtures" / "archives").iterdir()):
        shutil.copytree(source, root / ("docs" if source is WINDROSE else source.name))
    for path, text in {
        ".kb/config.json": '{"project_name": "windrose", "external_docs": {"path": "external"}}',
        "external/api.md": "# API\n\nA request is authenticated by a token.\n",
        "kb.json": '{"collections": {"book": "docs"}}',
    }.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    arguments: dict[str, Any] = {"project": root, "make_embedder": lambda _: model}
    with on_database(Database(root / "whole.db"), **arguments) as base:
        base.add(str(root / "docs"))
        base.add(str(root / "research"), str(root / "url-content"), kind="archive")
        base.add_document("notes/frost.md", "# Frost\n\nThe vane freezes at night.")
        base.create_index("plans")
        base.add_document("plan", "# Plan\n\nWe buy a second station.", index="plans")
        base.record("We use tokens for authentication", module="auth")
        base.record("Rule: the gauge must always be level", module="gauge")
        base.embed()
        shards = base.cut(root / "shards", (root / "whole.db").stat().st_size // 3 + 1)
        assert [shard.documents > 0 for shard in shards] == [True] * 3
    return root


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a copy of all that."""
    for file in ("whole.db", *(path.relative_to(made) for path in made.glob("shards/*.db"))):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(made / file, tmp_path / file)
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def opened(
    project: Path, tmp_path: Path, model: EnglishEmbedder
) -> Iterator[Callable[[str], Session]]:
    """Opens a copy of a file, or of the folder of shards, in the project."""
    sessions: list[Session] = []

    def open_one(name: str) -> Session:
        first, *others = database_paths([str(tmp_path / name)])
        base = on_database(
            Database(first),
            project=project,
            make_embedder=lambda _: model,
            beside=AttachedFiles(others),
        )
        sessions.append(Session(base))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


def test_the_tables_have_every_tool_and_command() -> None:
    assert {case.tool for case in (*CASES, *WRITES)} == load_tools().keys()
    assert {words[0] for words in COMMANDS} | OF_FILES | OTHERS == commands.COMMANDS.keys()


def test_shards_answer_as_the_whole_file(opened: Callable[[str], Session]) -> None:
    whole, shards = opened("whole.db"), opened("shards")
    assert len(shards.files) == 3
    for case in (*CASES, *WRITES):
        assert reply(shards, case) == reply(whole, case), case


def test_the_page_and_resources_show_shards_as_the_whole_file(
    opened: Callable[[str], Session],
) -> None:
    def shown(session: Session) -> list[Any]:
        base = session.base
        parts: list[Any] = []
        for document in ("guide/wind.md", "how-to/calibrate the vane.md"):
            view = view_document(base, "docs", document, 99)
            ends = {id_: (row["shown"], row["path"]) for id_, row in view.ends.items()}
            parts += [[ends.get(row["target_document_id"], row["target_url"]) for row in view.made]]
            parts += [sorted(ends[row["source_document_id"]] for row in view.received)]
        rows, _ = list_everything(base)
        parts += [[(row["shown"], row["documents"]) for row in rows]]
        picture = base.graph_picture(lambda name, path, _: f"{name}/{path}")
        parts += [sorted(node["id"] for node in picture["nodes"]), len(picture["edges"])]
        parts += [hashes_of_documents(base), read_resource(session, "context://project/overview")]
        return parts

    whole, shards = (shown(opened(name)) for name in ("whole.db", "shards"))
    assert len(whole[0]) > 3
    assert shards == whole


def test_what_is_written_is_in_the_first_shard(
    opened: Callable[[str], Session], tmp_path: Path
) -> None:
    shards = opened("shards")
    for case in WRITES:
        reply(shards, case)
    shards.close()
    names = []
    for file in sorted((tmp_path / "shards").glob("*.db")):
        with Database(file) as database, database.read() as connection:
            rows = connection.rows("collections")
        names.append({row["name"] for row in rows if row["kind"] in ("index", "discoveries")})
    assert names == [{"default", "discoveries", "log", "plans"}, set(), set()]


def test_commands_answer_as_of_the_whole_file(
    project: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = []
    for name in ("whole.db", "shards"):
        root = Path(shutil.copytree(project, tmp_path / f"of {name}"))
        for folder, words in (("more", 6), ("other", 5)):
            (root / folder).mkdir()
            for number in range(words):
                (root / folder / f"{number}.md").write_text(
                    f"# Page {number}\n\nA hygrometer, see [next]({number + 1}.md).\n"
                )
        monkeypatch.chdir(root)
        with pytest.raises(SystemExit):
            main(["--db", name, "trust"])
        capsys.readouterr()
        outcomes.append([])
        for words in COMMANDS:
            if words[0] == "move":
                (root / "other").rename(root / "moved")
            is_json = "mermaid" not in words
            with pytest.raises(SystemExit) as ended:
                main(["--db", name, *words, *(["--json"] if is_json else [])])
            out = capsys.readouterr().out.replace(str(root), "ROOT")
            shown = bare(json.loads(out), is_ranked=words[0] in RANKED) if is_json else out
            outcomes[-1].append((words, ended.value.code, shown))
    for whole, shards in zip(*outcomes, strict=True):
        assert shards == whole


@pytest.mark.skipif(find_spec("distributed") is None, reason="the extra dask is not installed")
@pytest.mark.filterwarnings("default")  # of Dask's own
@pytest.mark.usefixtures("sockets_collected")
def test_workers_answer_as_the_whole_file(opened: Callable[[str], Session], tmp_path: Path) -> None:
    from dask_processes import cluster

    whole, here = opened("whole.db"), opened("here.db")
    with cluster(tmp_path, 2) as workers:
        here.base.use_shards(workers.address, [str(tmp_path / "shards")], 60)
        for case in CASES:
            assert reply(here, case) == reply(whole, case), case
        before = {file: file.read_bytes() for file in (tmp_path / "shards").iterdir()}
        for case in WRITES:  # they act on the file here, which is no shard
            reply(here, case)
        assert {file: file.read_bytes() for file in (tmp_path / "shards").iterdir()} == before
        assert here.base.shards is not None
        here.base.shards.close()


def test_an_archive_that_changed_is_looked_at_in_every_shard(
    opened: Callable[[str], Session], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kb.disk import watch

    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LOOK_SHARE", 0.0)
    shards = opened("shards")
    shards.base.confirm_sources(shards.base.sources_to_confirm())  # the copies are strangers
    added = [project / "research" / f"report-{number}.md" for number in range(9)]
    try:
        for file in added:
            file.write_text(f"# Report {file.stem}\n\nA pyranometer stands there.\n")
        rows = call_tool(shards, "searchLocalArchives", {"query": "pyranometer"}).content["results"]
        assert {row["document"]["path"] for row in rows} == {f"research/{f.name}" for f in added}
        holders = {hit for file in shards.files if (hit := file.database.path) and _has(file)}
        assert len(holders) > 1
        assert shards.activity.added.is_set()
        shards.base.embed_added(lambda: False)
        assert shards.base.count_waiting() == 0
    finally:
        for file in added:
            file.unlink()


def _has(file: Any) -> bool:
    with file.database.read() as connection:
        return any(
            path.startswith("report-")
            for row in connection.rows("collections")
            for path in connection.column("document_paths", collection_id=row["collection_id"])
        )
