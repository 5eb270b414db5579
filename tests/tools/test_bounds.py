"""Whatever is asked for, a reply stays within its budget."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support import HashEmbedder

from kb.ingest.discoveries import record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.server.features import document_uri, read_resource
from kb.store.database import Database
from kb.tools.registry import call_tool, load_tools
from kb.tools.session import Session, open_session

BUDGET = 500
# Of a reply: its keys, names and notices, which no budget takes away.
FRAME_CHARACTERS = 1200
LONG = "gusts of wind over the mast and the vane of the station at night "


def calls() -> dict[str, list[dict[str, Any]]]:
    big = {"collection": "docs", "document": "big.md"}
    query = {"query": "gusts of wind"}
    return {
        "documents_list_collections": [{}],
        "documents_list_documents": [{"collection": "docs", "limit": 1000}],
        "documents_context": [query, {**query, "maxCharacters": 40_000}],
        "documents_search": [{**query, "limit": 100}],
        "documents_search_batch": [{"queries": [query] * 10, "limit": 100}],
        "documents_get_document": [big, {"collection": "docs", "document": "one-line.md"}],
        "documents_get_outline": [{**big, "maxDepth": 6}],
        "documents_get_section": [{**big, "section": "Big"}],
        "documents_find_related": [{**big, "limit": 100}, {**big, "sameDocument": True}],
        "search_index": [{**query, "k": 100, "index_name": "notes"}],
        "search_add_document": [{"doc_id": "d", "content": "text", "index_name": "notes"}],
        "search_create_index": [{"index_name": "another"}],
        "searchLocalArchives": [{**query, "includeCitations": True, "limit": 50}],
        "activate_project": [{}],
        "search_external_docs": [{**query, "limit": 100, "min_relevance_score": 0}],
        "context_search": [{**query, "limit": 20}],
        "context_record": [{"content": LONG}],
        "read_file": [{"path": "main.py", "includeDeps": True}],
        "grep_codebase": [{"pattern": "gusts", "limit": 100}],
    }


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A project in which everything is long and there is much of it."""
    root = tmp_path_factory.mktemp("much")
    docs, archive, external = root / "docs", root / "archive", root / "external"
    for folder in (docs, archive, external, root / ".kb"):
        folder.mkdir()
    for number in range(60):
        text = f"# {LONG * 3} {number}\n\n{LONG * 20}\n\n[next](page-{number + 1}.md)\n"
        for folder in (docs, archive, external):
            (folder / f"page-{number}.md").write_text(text)
    links = "".join(f"[{LONG}](page-{number}.md)\n\n" for number in range(60))
    (archive / "hub.md").write_text(f"# {LONG}\n\n{links}")
    (docs / "big.md").write_text(
        "# Big\n\n" + "".join(f"## {LONG}{n}\n\n{LONG * 5}\n\n" for n in range(300))
    )
    (docs / "one-line.md").write_text(LONG * 2000)
    (root / "main.py").write_text("import other\n" + f"gusts = '{LONG}'\n" * 500)
    (root / "other.py").write_text(f"wind = '{LONG}'\n" * 500)
    for number in range(40):
        (root / f"module-{number}").mkdir()
        (root / f"module-{number}" / "code.py").write_text("gusts = 1\n")
    (root / ".kb" / "config.json").write_text(
        json.dumps({"project_name": "much", "external_docs": {"path": "external"}})
    )
    embedder = HashEmbedder()
    database = Database(root / ".kb" / "kb.db")
    with open_session(database, project=root, make_embedder=lambda _: embedder) as session:
        sync_collection(database, register(database, str(docs)))
        sync_collection(database, register(database, str(archive), kind="archive"))
        call_tool(session, "search_create_index", {"index_name": "notes"})
        for number in range(30):
            call_tool(
                session,
                "search_add_document",
                {
                    "doc_id": f"note-{number}",
                    "content": LONG * 10,
                    "metadata": {"by": LONG * 50},
                    "index_name": "notes",
                },
            )
            record_discovery(session.model, f"{LONG * 8} {number}", module="module-1")
        embed_pending(session.model)
        session.project.activate()
        session.log.begin("a client")
        for number in range(100):
            session.log.note("query", "documents_search", f"{LONG * 5} {number}")
            session.log.read(f"module-{number}/code.py", f"module-{number}", 10)
        session.reply_tokens = BUDGET
        yield session


@pytest.mark.parametrize("name", load_tools())
def test_reply_of_a_tool_stays_within_its_budget(name: str, much: Session) -> None:
    for arguments in calls()[name]:
        result = call_tool(much, name, arguments)
        assert not result.is_error, result.text
        assert len(result.text) <= 4 * BUDGET + FRAME_CHARACTERS, arguments


@pytest.mark.parametrize(
    "uri",
    [
        "context://project/overview",
        "context://session/current",
        "context://sessions/recent",
        "context://module/module-1",
        "kb://docs/big.md",
        "kb://docs/one-line.md",
    ],
)
def test_resource_stays_within_the_budget(uri: str, much: Session) -> None:
    _, text = read_resource(much, uri)
    assert len(text) <= 4 * BUDGET + FRAME_CHARACTERS


def test_resource_of_external_docs_stays_within_the_budget(much: Session) -> None:
    with much.database.read() as connection:
        (row,) = much.names.collections(connection, ("external",))
    _, text = read_resource(much, document_uri(row["name"], "page-1.md"))
    assert len(text) <= 4 * BUDGET + FRAME_CHARACTERS


def test_cut_resource_says_how_to_read_on(much: Session) -> None:
    _, text = read_resource(much, "kb://docs/big.md")
    assert "[This is the beginning of 1,202 lines. Read on with documents_get_document" in text
    whole = json.loads(read_resource(much, "context://project/overview")[1])
    assert "The reply is full" in whole["notice"]


def test_batch_has_rows_for_every_query_where_there_is_room(much: Session) -> None:
    much.reply_tokens = 4000
    try:
        result = call_tool(much, "documents_search_batch", calls()["documents_search_batch"][0])
    finally:
        much.reply_tokens = BUDGET
    sizes = [len(one["results"]) for one in result.content["results"]]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert result.content["truncated"]
