"""Several files searched and read as one."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import mcp_types as types
import pytest
from support import HashEmbedder, call, failure, search

from kb.cli.main import main
from kb.errors import EmbeddingError, FileError, UsageError
from kb.evaluation.judged import Judged, judged_figures, measure, pages, run_queries
from kb.ingest.copying import move_collection
from kb.ingest.discoveries import all_discoveries, record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.forget import forget_discovery
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.search import files
from kb.search.files import SearchedFile, Together
from kb.search.results import search_for_people
from kb.search.run import SearchRequest
from kb.server.features import completions, list_resources, make_prompt, read_resource
from kb.settings import database_paths
from kb.store.collections import all_collections
from kb.store.connection import Connection
from kb.store.database import AttachedFiles, Database, labels
from kb.tools.session import Session, open_session

pytestmark = pytest.mark.usefixtures("many_processes")


@pytest.fixture(autouse=True)
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large files are read."""
    monkeypatch.setattr(files, "SIDE_BY_SIDE", 0)


Make = Callable[..., Path]
Open = Callable[..., Session]

PAGES = {
    "wind.md": "# Wind\n\nThe anemometer counts the turns of its cups in ten seconds.",
    "rain.md": "# Rain\n\nThe gauge tips once for every fifth of a millimetre.",
    "frost.md": "# Frost\n\nBelow zero the heater of the gauge melts what falls.",
    "log.md": "# Log\n\nThe station writes a line a minute, with the battery's voltage.",
    "mast.md": "# Mast\n\nGuy wires hold the mast; check the shackles in spring.",
    "vane.md": "# Vane\n\nThe vane is turned until it points to the church tower.",
}


@pytest.fixture
def make(tmp_path: Path, embedder: HashEmbedder) -> Make:
    """Makes a file of documents, in one collection of a name."""

    def make_file(
        name: str,
        documents: dict[str, str],
        collection: str = "",
        embedder: HashEmbedder = embedder,
    ) -> Path:
        folder = tmp_path / f"of-{name}" / (collection or name)
        folder.mkdir(parents=True)
        for path, text in documents.items():
            (folder / path).write_text(text)
        path = tmp_path / f"{name}.db"
        with open_session(Database(path), project=tmp_path, make_embedder=lambda _: embedder) as kb:
            sync_collection(kb.database, register(kb.database, str(folder)))
            embed_pending(kb.model)
        return path

    return make_file


@pytest.fixture
def open_files(tmp_path: Path, embedder: HashEmbedder) -> Iterator[Open]:
    """Opens several files as one."""
    with ExitStack() as stack:

        def open_all(first: Path, *others: Path, make_embedder: object = None) -> Session:
            return stack.enter_context(
                open_session(
                    Database(first),
                    project=tmp_path,
                    make_embedder=make_embedder or (lambda _: embedder),  # type: ignore[arg-type]
                    beside=AttachedFiles(others),
                )
            )

        yield open_all


def rows(kb: Session, query: str, **arguments: object) -> list[tuple[str, str, float]]:
    found = call(kb, "documents_search", query=query, **arguments)["results"]
    return [(row["collection"], row["documentId"], row["relevanceScore"]) for row in found]


def test_a_split_collection_is_found_as_the_whole_one_is(make: Make, open_files: Open) -> None:
    names = sorted(PAGES)
    whole = make("whole", PAGES)
    one = make("one", {name: PAGES[name] for name in names[:2]})
    two = make("two", {name: PAGES[name] for name in names[2:4]})
    three = make("three", {name: PAGES[name] for name in names[4:]})
    alone, together = open_files(whole), open_files(one, two, three)
    for query in ("gauge heater", "battery voltage", "where does the vane point", "the mast"):
        expected = [(document, score) for _, document, score in rows(alone, query)]
        found = [(document, score) for _, document, score in rows(together, query)]
        assert [document for document, _ in found[:2]] == [document for document, _ in expected[:2]]
        # How long the documents of a file are on average is the file's own.
        assert [score for _, score in found[:2]] == pytest.approx(
            [score for _, score in expected[:2]], abs=0.06
        )


def test_a_word_that_one_file_is_full_of_is_as_common_as_in_all_files(
    make: Make, open_files: Open
) -> None:
    common = {f"{n}.md": f"# Page {n}\n\nThe turbine number {n} is here." for n in range(8)}
    rare = {f"{n}.md": f"# Leaf {n}\n\nSome other words, {n} of them." for n in range(8)}
    rare["only.md"] = "# Only\n\nA turbine and some other words."
    full, empty = make("full", common), make("empty", rare)
    everything = make("everything", {f"a{k}": v for k, v in common.items()} | rare)

    def held(kb: Session) -> float:
        found = search(kb, "turbine", limit=20)
        hit = next(
            hit
            for hit, row in zip(found.hits, found.rows, strict=True)
            if row["documentId"] == "only.md"
        )
        assert hit.evidence is not None
        return hit.evidence.rarity

    alone = held(open_files(empty))
    whole = held(open_files(everything))
    found = search(open_files(empty, full), "turbine", limit=20)
    assert [hit.evidence.rarity for hit in found.hits if hit.evidence] == pytest.approx(
        [whole] * len(found.hits)
    )
    assert alone > 2 * whole


def test_names_carry_the_file_only_where_they_clash(make: Make, open_files: Open) -> None:
    first = make("first", {"wind.md": PAGES["wind.md"]}, "notes")
    second = make("second", {"rain.md": PAGES["rain.md"]}, "notes")
    third = make("third", {"log.md": PAGES["log.md"]})
    kb = open_files(first, second, third)
    listed = call(kb, "documents_list_collections")["collections"]
    assert [row["collection"] for row in listed] == ["notes@first", "notes@second", "third"]
    found = call(kb, "documents_get_document", collection="notes@second", document="rain.md")
    assert "tips once" in found["content"]
    assert found["collection"] == "notes@second"
    assert failure(kb, "documents_get_document", collection="notes@first", document="rain.md")
    # Without the file a name means all of that name where it is searched, else the first file's.
    assert {row[0] for row in rows(kb, "the", collections=["notes"])} == {
        "notes@first",
        "notes@second",
    }
    assert {row[0] for row in rows(kb, "the", collections=["notes@second"])} == {"notes@second"}
    assert call(kb, "documents_get_document", collection="notes", document="wind.md")
    said = failure(kb, "documents_search", query="x", collections=["notes@secnd"])
    assert said["code"] == "COLLECTION_NOT_FOUND"
    assert "notes@second" in said["suggestions"]


def test_every_read_tool_sees_the_files_beside(make: Make, open_files: Open) -> None:
    first, second = make("first", {"wind.md": PAGES["wind.md"]}), make("second", PAGES)
    with open_files(second) as other:
        call(other, "search_add_document", doc_id="d", content="A kettle boils.")
        record_discovery(other.model, "We use kettles for calibration", "", "lab")
        embed_pending(other.model)
    kb = open_files(first, second)
    name = {"collection": "second", "document": "rain.md"}
    assert call(kb, "documents_list_documents", collection="second")["total"] == len(PAGES)
    assert call(kb, "documents_get_outline", **name)["outline"][0]["text"] == "Rain"
    assert "tips once" in call(kb, "documents_get_section", **name, section="Rain")["content"]
    assert call(kb, "documents_find_related", **name)["related"]
    assert call(kb, "search_index", query="kettle")["results"][0]["doc_id"] == "d"
    assert call(kb, "context_search", query="kettles for calibration")["totalFound"] == 1
    resources, cursor = list_resources(kb)
    more, end = list_resources(kb, cursor)
    assert "kb://first/wind.md" in {one.uri for one in resources}
    assert "kb://second/rain.md" in {one.uri for one in more}
    assert end == ""
    assert "tips once" in read_resource(kb, "kb://second/rain.md")[1]
    # What is written goes to the first file.
    call(kb, "search_add_document", doc_id="new", content="A new page.")
    with kb.database.read() as connection:
        assert "default" in {row["name"] for row in all_collections(connection)}


@pytest.mark.parametrize("harm", ["missing", "damaged", "truncated", "replaced"])
def test_a_file_that_cannot_be_read_is_told_and_the_others_answer(
    make: Make, open_files: Open, harm: str, tmp_path: Path
) -> None:
    first, second = make("first", {"wind.md": PAGES["wind.md"]}), make("second", PAGES)
    third = make("third", {"log.md": PAGES["log.md"]})
    kb = open_files(first, second, third)
    assert "notice" not in call(kb, "documents_search", query="gauge")
    content = second.read_bytes()
    match harm:
        case "missing":
            second.unlink()
        case "damaged":
            second.write_bytes(b"no database" * 1000)
        case "truncated":
            second.unlink()
            second.write_bytes(content[: len(content) // 2])
        case "replaced":
            new = tmp_path / "new.db"
            new.write_bytes(content)
            new.replace(second)
    found = call(kb, "documents_search", query="battery voltage")
    assert found["results"][0]["documentId"] == "log.md"
    if harm == "replaced":  # opened anew
        assert "notice" not in found
        return
    assert "second.db" in found["notice"]
    assert "second.db" in call(kb, "documents_list_collections")["notice"]
    said = failure(kb, "documents_get_document", collection="second", document="rain.md")
    assert "second.db" in said["error"]
    second.unlink(missing_ok=True)
    second.write_bytes(content)
    assert "notice" not in call(kb, "documents_search", query="battery voltage")
    assert call(kb, "documents_get_document", collection="second", document="rain.md")


def test_files_with_different_models_are_searched_together(make: Make, open_files: Open) -> None:
    other = HashEmbedder("hash-32", 32)
    models = {"hash-64": HashEmbedder(), "hash-32": other}
    first = make("first", {"wind.md": PAGES["wind.md"]})
    second = make("second", {"rain.md": PAGES["rain.md"]}, embedder=other)
    kb = open_files(first, second, make_embedder=models.__getitem__)
    found = call(kb, "documents_search", query="the gauge tips")
    assert found["results"][0]["documentId"] == "rain.md"
    assert all("distance" in row for row in found["results"])


def test_a_file_whose_model_is_missing_is_searched_by_words(make: Make, open_files: Open) -> None:
    other = HashEmbedder("hash-32", 32)
    first = make("first", {"wind.md": PAGES["wind.md"]})
    second = make("second", {"rain.md": PAGES["rain.md"]}, embedder=other)

    def make_embedder(name: str) -> HashEmbedder:
        if name == "hash-32":
            raise EmbeddingError("hash-32 is not here")
        return HashEmbedder()

    found = call(
        open_files(first, second, make_embedder=make_embedder),
        "documents_search",
        query="the gauge tips",
    )
    assert "hash-32 is not here" in found["notice"]
    assert {row["collection"]: "distance" in row for row in found["results"]} == {
        "first": True,
        "second": False,
    }


def test_a_word_that_any_file_knows_is_not_taken_for_a_typo(make: Make, open_files: Open) -> None:
    first = make("first", {"a.md": "# A\n\nThe kettle boils."})
    second = make("second", {"b.md": "# B\n\nThe settle is a bench."})
    assert (
        "No document has" in call(open_files(first), "documents_search", query="settle")["notice"]
    )
    together = call(open_files(first, second), "documents_search", query="settle")
    assert "notice" not in together
    assert together["results"][0]["documentId"] == "b.md"


def test_quotes_are_loosened_only_where_no_file_holds_the_words(
    make: Make, open_files: Open
) -> None:
    first = make("first", {"a.md": "# A\n\nThe tips of the gauge."})
    second = make("second", {"b.md": "# B\n\nThe gauge tips once."})
    kb = open_files(first, second)
    assert [row[1] for row in rows(kb, '"gauge tips"')] == ["b.md"]
    assert "without the quotes" in call(kb, "documents_search", query='"tips gauge"')["notice"]


def test_several_files_are_named_by_options_and_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database_paths(["a.db", "b.db", "a.db"]) == [Path("a.db"), Path("b.db")]
    monkeypatch.setenv("KB_DB", "a.db:b.db")
    monkeypatch.setattr("os.pathsep", ":")
    assert database_paths() == [Path("a.db"), Path("b.db")]
    odd = tmp_path / "a:b.db"
    odd.touch()
    monkeypatch.setenv("KB_DB", str(odd))
    assert database_paths() == [odd]


def test_labels_tell_files_apart() -> None:
    paths = [Path("/a/.kb/kb.db"), Path("/b/.kb/kb.db"), Path("/x/a.db"), Path("/y/z.db")]
    assert labels(paths) == ["a", "b", "a-2", "z"]


def test_a_moved_collection_is_found_as_before(make: Make, open_files: Open) -> None:
    """Scores, vectors and links; nothing is embedded again."""
    linked = PAGES | {
        "index.md": "# Index\n\nSee [rain](rain.md) and [wind](wind.md).\n\n## Part\n"
    }
    path = make("whole", linked)
    kb = open_files(path)
    before = rows(kb, "gauge heater")
    outline = call(kb, "documents_get_outline", collection="whole", document="index.md")
    other = Database(path.with_name("other.db"))
    with kb.database.read() as connection:
        row = next(row for row in all_collections(connection) if row["name"] == "whole")
    moved = move_collection(kb.database, other, row)
    assert (moved.documents, moved.waiting) == (len(linked), 0)
    assert rows(kb, "gauge heater") == []
    other.close()
    after = open_files(path.with_name("other.db"))
    assert rows(after, "gauge heater") == before
    assert call(after, "documents_get_outline", collection="whole", document="index.md") == outline
    with after.database.read() as connection:
        links = connection.tuples("whole_citation_graph")
    assert len(links) == 2
    assert all(target for _, target, *_ in links)


def test_a_move_that_was_cut_off_between_the_files_goes_on(make: Make, open_files: Open) -> None:
    path = make("whole", PAGES)
    copy = Path(shutil.copy(path, path.with_name("copy.db")))
    kb, other = open_files(path), open_files(copy)
    with kb.database.read() as connection:
        row = all_collections(connection)[0]
    moved = move_collection(kb.database, other.database, row)
    assert (moved.name, moved.documents) == ("whole", len(PAGES))
    assert call(other, "documents_list_documents", collection="whole")["total"] == len(PAGES)
    assert call(kb, "documents_list_collections")["collections"] == []


def test_what_is_stored_while_a_collection_moves_goes_along(
    tmp_path: Path, open_files: Open
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    kb, server = open_files(source), open_files(source)
    for name in ("kept", "changed", "listed"):
        call(kb, "search_add_document", doc_id=name, content=f"The {name} gauge.")
    record_discovery(kb.model, "We use brass for the vane of the mast")
    gone = record_discovery(kb.model, "We decided to paint every battery box in white")
    with kb.database.read() as connection:
        collections = {row["kind"]: row for row in all_collections(connection)}

    def meanwhile(_: str, done: int, total: int) -> None:
        if done == 0 and total == 3:
            call(server, "search_add_document", doc_id="new", content="A new gauge.")
            call(server, "search_add_document", doc_id="changed", content="Another gauge.")
            call(
                server,
                "search_add_document",
                doc_id="listed",
                content="The listed gauge.",
                metadata={"a": 1},
            )
        elif done == 0:
            forget_discovery(server.database, gone.id)

    with Database(target) as other:
        for kind in ("index", "discoveries"):
            move_collection(kb.database, other, collections[kind], meanwhile)
    found = call(open_files(target), "search_index", query="gauge")["results"]
    assert {row["doc_id"]: row["metadata"] for row in found} == {
        "kept": {},
        "changed": {},
        "new": {},
        "listed": {"a": 1},
    }
    assert "Another gauge." in str(found)
    with Database(target) as other, other.read() as connection:
        notes = [one["content"] for one in all_discoveries(connection)]
    assert [("brass" in note, "battery" in note) for note in notes] == [(True, False)]
    assert call(kb, "search_index", query="gauge")["results"] == []


def test_merged_collections_of_one_name_stay_apart(make: Make, open_files: Open) -> None:
    first = make("first", {"a.md": PAGES["wind.md"]}, "docs")
    second = make("second", {"a.md": PAGES["rain.md"]}, "docs")
    kb, other = open_files(first), open_files(second)
    with other.database.read() as connection:
        row = all_collections(connection)[0]
    assert move_collection(other.database, kb.database, row).name == "docs-2"
    listed = call(kb, "documents_list_collections")["collections"]
    assert [row["collection"] for row in listed] == ["docs", "docs-2"]


def test_what_is_typed_is_completed_from_all_files(make: Make, open_files: Open) -> None:
    one = make("one", {"wind.md": PAGES["wind.md"]}, "docs")
    two = make("two", {"mast.md": PAGES["mast.md"]}, "docs")
    three = make("three", {"vane.md": PAGES["vane.md"]})
    kb = open_files(one, two, three)

    def typed(argument: str, text: str = "", **others: str) -> list[str]:
        return completions(kb, "summarise-section", argument, text, others)[0]

    assert typed("collection") == ["docs@one", "docs@two", "three"]
    assert typed("document") == ["wind.md", "mast.md", "vane.md"]
    assert typed("document", collection="docs@two") == ["mast.md"]
    assert typed("section", collection="three", document="vane.md") == ["Vane"]


def test_the_prompt_of_what_changed_tells_of_all_files(make: Make, open_files: Open) -> None:
    kb = open_files(*(make(name, {f"{name}.md": PAGES["wind.md"]}) for name in ("one", "two")))

    def prompt(**arguments: str) -> str:
        (message,) = make_prompt(kb, "what-changed", arguments).messages
        assert isinstance(message.content, types.TextContent)
        return message.content.text

    assert "one: one.md" in prompt()
    assert "two: two.md" in prompt()
    assert "one.md" not in prompt(collection="two")


def test_without_a_project_here_files_are_read_as_they_are_stored_in_any(
    make: Make, open_files: Open, tmp_path: Path
) -> None:
    kb = open_files(*(make(name, {f"{name}.md": PAGES["wind.md"]}) for name in ("one", "two")))
    for name in ("one", "two"):
        shutil.rmtree(tmp_path / f"of-{name}")
    kb.knowledge.project = tmp_path / "elsewhere"
    for name in ("one", "two"):
        assert "anemometer" in call(kb, "read_file", path=f"{name}.md")["file"]["content"]
    found = call(kb, "grep_codebase", pattern="anemometer")
    places = [match["file"] for match in found["matches"]]
    assert places == ["of-one/one/one.md", "of-two/two/two.md"]


def test_an_error_of_one_file_waits_for_the_others(make: Make, open_files: Open) -> None:
    kb = open_files(make("first", PAGES), make("second", PAGES))
    together = Together(kb.files)
    others_may_go_on, ended = threading.Event(), []

    def work(file: SearchedFile, connection: Connection) -> None:
        if file is together.files[0]:
            threading.Timer(0.05, others_may_go_on.set).start()
            raise UsageError("on purpose")
        assert others_may_go_on.wait(10)
        ended.append(file)

    with pytest.raises(UsageError, match="on purpose"), together.read():
        together.each(work, at_once=True)
    assert ended == together.files[1:]


def test_small_files_are_read_one_after_the_other_with_the_same_rows(
    make: Make, open_files: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = open_files(make("first", PAGES), make("second", PAGES))
    at_once = call(kb, "documents_search", query="gauge of a millimetre")
    monkeypatch.setattr(files, "SIDE_BY_SIDE", 1_000_000_000)
    together, threads = Together(kb.files), set()
    with together.read():
        together.each(lambda *_: threads.add(threading.get_ident()), at_once=True)
    assert threads == {threading.get_ident()}
    assert call(kb, "documents_search", query="gauge of a millimetre") == at_once


def test_a_word_that_another_file_knows_is_no_typo_in_what_people_are_shown(
    make: Make, open_files: Open
) -> None:
    one = make("one", {"wibble.md": "# Rain\n\nThe wibble tips over."})
    two = make("two", {"cloth.md": "# Cloth\n\nThe wobble tips over."})
    kb = open_files(one, two)
    shown, notice = search_for_people(kb.files, SearchRequest("wibble tips"))
    marked = {
        row["documentId"]: [row["snippet"][start:end] for start, end in row["marks"]]
        for row in shown
    }
    assert marked == {"wibble.md": ["wibble", "tips"], "cloth.md": ["tips"]}
    assert "wobble" not in notice
    alone, _ = search_for_people(open_files(two).files, SearchRequest("wibble tips"))
    assert [alone[0]["snippet"][start:end] for start, end in alone[0]["marks"]] == [
        "wobble",
        "tips",
    ]


def test_the_search_over_all_files_is_measured(make: Make, open_files: Open) -> None:
    names = sorted(PAGES)
    alone = open_files(make("whole", PAGES))
    kb = open_files(
        make("one", {name: PAGES[name] for name in names[:3]}),
        make("two", {name: PAGES[name] for name in names[3:]}),
    )
    judged = Judged(
        {"a": "the gauge tips", "b": "church tower"},
        {"a": {"rain.md": 1}, "b": {"vane.md": 1}},
    )
    found, expected = run_queries(kb.files, judged), run_queries(alone.files, judged)
    for mode, run in found.items():
        assert {key: run.documents[key][:1] for key in judged.questions} == {
            key: expected[mode].documents[key][:1] for key in judged.questions
        }
        assert len(run.first_rows["a"]) == len(expected[mode].first_rows["a"])
    assert measure(judged, found["hybrid"])["nDCG@10"] == 1.0
    assert judged_figures(kb.files, judged)["shareOfBestF1"] > 0
    assert sorted(page.path for page in pages(kb.files)) == names


def test_nothing_is_measured_while_a_file_does_not_answer(make: Make, open_files: Open) -> None:
    kb = open_files(make("one", PAGES), make("two", PAGES))
    files = kb.files
    files[1].database.path.write_bytes(b"no database" * 1000)
    judged = Judged({"a": "the gauge tips"}, {"a": {"rain.md": 1}})
    with pytest.raises(FileError, match=r"two\.db"):
        run_queries(files, judged)


def test_a_discovery_of_another_file_is_forgotten_there(
    make: Make, open_files: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make("first", PAGES), make("second", {"wind.md": PAGES["wind.md"]})
    other = open_files(second)
    found = record_discovery(other.model, "We use kettles for calibration").id
    command = ["forget", found[:8]]
    with pytest.raises(SystemExit):
        main(["--db", str(first), "--db", str(second), *command])
    assert f"kb --db {second} forget {found}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--db", str(first), *command])
    assert "kb recall" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--db", str(second), *command])
    assert not ended.value.code


def test_calls_of_all_files_are_summed_up(
    make: Make, open_files: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [make("first", PAGES), make("second", {"wind.md": PAGES["wind.md"]})]
    for milliseconds, path in enumerate(files, 1):
        kb = open_files(path)
        kb.calls.add("read_file", "", float(milliseconds), 10)
        kb.flush()
    named = [word for path in files for word in ("--db", str(path))]
    with pytest.raises(SystemExit):
        main([*named, "status", "--calls", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["calls"]
    assert (row["tool"], row["calls"], row["p50"], row["p99"]) == ("read_file", 2, 1.0, 2.0)
