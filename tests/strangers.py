"""Hostile knowledge base files: what a stranger may commit to a repository as `.kb/kb.db`.

Each function of `HOSTILE` changes a sound file of this version, or what lies beside it. `use` does
with such a file what a person and an assistant do who have just cloned it; this module, run as a
program, does so for each of them in a process of its own and prints what happened.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from support import HashEmbedder

from kb.cli.main import main as kb
from kb.ingest.discoveries import record_discovery
from kb.ingest.embed import embed_pending
from kb.ingest.follow import follow_folders
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.tools.registry import call_tool
from kb.tools.session import open_session

HANGS = 100  # seconds
FOREVER = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
SLOW = "length(hex(replace(hex(zeroblob(9000000)), '0', 'ab')))"
DEEP = "[" * 50_000
TOO_LARGE = 10**15
SECRET = "marzipan"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("documents_list_collections", {}),
    ("documents_list_documents", {"collection": "docs"}),
    ("documents_search", {"query": "calibrate the vane", "hybridSearch": True}),
    ("documents_search", {"query": '+gauge "wind vane" -mast cal*'}),
    ("documents_search", {"query": SECRET}),
    ("documents_search", {"query": "vanes of the stationn", "hybridSearch": False}),
    ("documents_get_document", {"collection": "docs", "document": "vane.md"}),
    ("documents_get_outline", {"collection": "docs", "document": "vane.md"}),
    ("documents_get_section", {"collection": "docs", "document": "vane.md", "section": "Mast"}),
    ("documents_find_related", {"collection": "docs", "document": "vane.md"}),
    ("search_index", {"query": "vane gauge"}),
    ("search_add_document", {"doc_id": "new", "content": "A new vane [x](page-1.md)."}),
    ("context_search", {"query": "which vane is used"}),
    ("context_record", {"content": "We use a vane of brass for the mast"}),
    ("searchLocalArchives", {"query": "vane", "includeCitations": True, "citationDepth": 3}),
    ("read_file", {"path": "docs/vane.md"}),
    ("grep_codebase", {"pattern": "vane"}),
]
COMMANDS = (
    *(["status", "--json"], ["list", "--json"], ["get", "vane.md"]),
    *(["cite", "vane.md"], ["graph", "--format", "json"], ["graph", "--broken"]),
    *(["outline", "vane.md"], ["related", "vane.md"], ["recall", "brass"], ["list", "docs"]),
    *(["sync", "--no-embed"], ["copy", "copy.db"]),
)


class Place(NamedTuple):
    """Where a hostile file lies."""

    file: Path  # `.kb/kb.db` of the project
    outside: Path  # a folder that nobody said anything about

    def run(self, *statements: str) -> None:
        with contextlib.closing(apsw.Connection(str(self.file))) as connection:
            for statement in statements:
                connection.execute(statement)

    def define(self, name: str, sql: str) -> None:
        """Put another definition in the place of one of ours."""
        with contextlib.closing(apsw.Connection(str(self.file))) as connection:
            connection.pragma("writable_schema", True)
            connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))

    def definition(self, name: str) -> str:
        with contextlib.closing(apsw.Connection(str(self.file))) as connection:
            sql: Any = connection.execute(
                "SELECT sql FROM sqlite_schema WHERE name = ?", (name,)
            ).get
            return str(sql)

    def page(self, number: int, data: bytes | None = None) -> bytes:
        """A page of the file, replaced if data is given."""
        with self.file.open("r+b") as stream:
            stream.seek(4096 * (number - 1))
            old = stream.read(4096)
            if data is not None:
                stream.seek(4096 * (number - 1))
                stream.write(data)
            return old

    def root(self, table: str) -> int:
        with contextlib.closing(apsw.Connection(str(self.file))) as connection:
            number: Any = connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).get
            return int(number)


Change = Callable[[Place], None]
HOSTILE: dict[str, Change] = {}


def hostile(change: Change) -> Change:
    HOSTILE[change.__name__.replace("_", " ")] = change
    return change


def statements(name: str, *sql: str) -> None:
    HOSTILE[name] = lambda place: place.run(*sql)


# ---- what the schema holds

statements(
    "a view of ours never ends",
    "DROP VIEW chunk_texts",
    f"CREATE VIEW chunk_texts AS {FOREVER} SELECT x AS chunk_id, 1 AS document_id, '' AS title, "
    "'' AS heading, '' AS lead, '' AS body, '' AS extra FROM n",
)
statements(
    "a view in the place of a table",
    "PRAGMA foreign_keys = OFF",
    "ALTER TABLE collections RENAME TO hidden",
    f"CREATE VIEW collections AS {FOREVER} SELECT x AS collection_id, 'c' || x AS name, "
    "'documents' AS kind, '/' AS source, '[]' AS include, '[]' AS exclude, '{}' AS options, "
    "NULL AS description, NULL AS version, NULL AS project_id, '' AS created_at, "
    "NULL AS synced_at FROM n",
)
statements(
    "triggers on documents",
    "CREATE TRIGGER one AFTER INSERT ON documents BEGIN "
    f"INSERT INTO vocabulary SELECT 'w' || x, '' FROM ({FOREVER} SELECT x FROM n); END",
    "CREATE TRIGGER two AFTER UPDATE ON collections BEGIN "
    "UPDATE collections SET source = '/etc'; END",
)
statements(
    "a trigger on what each session writes",
    "CREATE TRIGGER one AFTER INSERT ON tool_calls BEGIN "
    f"DELETE FROM documents WHERE document_id IN ({FOREVER} SELECT x FROM n); END",
)
statements(
    "a table beside ours that refers to it",
    "CREATE TABLE more (x REFERENCES documents (document_id) ON DELETE RESTRICT)",
    "INSERT INTO more SELECT document_id FROM documents",
)
statements(
    "an index that computes",
    f"CREATE INDEX slow ON documents (length(title) + {SLOW})",
)
statements(
    "a virtual table in the place of a table",
    "DROP TABLE vocabulary",
    "CREATE VIRTUAL TABLE vocabulary USING fts5 (word, stem)",
)
statements(
    "a virtual table of the file's own pages",
    "DROP TABLE word_endings",
    "CREATE VIRTUAL TABLE word_endings USING dbstat",
)
statements(
    "an index of words over another view",
    "DROP TABLE keyword_index",
    f"CREATE VIEW evil AS {FOREVER} SELECT x AS chunk_id, '' AS title, '' AS heading, "
    "'' AS body, '' AS extra FROM n",
    "CREATE VIRTUAL TABLE keyword_index USING fts5 (title, heading, body, extra, "
    "content = 'evil', content_rowid = 'chunk_id')",
)
statements("a statistic that misleads", "ANALYZE", "UPDATE sqlite_stat1 SET stat = '1 1 1 1'")
statements(
    "tables are missing", "DROP TABLE tokens", "DROP TABLE places", "DROP VIEW citation_texts"
)
statements(
    "another program's names",
    "CREATE TABLE IF NOT EXISTS [a table; DROP TABLE documents] (x)",
    'CREATE VIEW "\x1b]0;owned\x07" AS SELECT 1',
)


@hostile
def a_column_that_computes(place: Place) -> None:
    sql = place.definition("documents")
    place.define(
        "documents",
        sql.replace("content         TEXT NOT NULL", f"content TEXT AS (printf('%d', {SLOW}))"),
    )


@hostile
def a_check_that_computes(place: Place) -> None:
    sql = place.definition("tool_calls")
    place.define("tool_calls", sql.replace("TEXT NOT NULL,", f"TEXT CHECK ({SLOW} > 0),", 1))


@hostile
def a_view_that_hides_behind_a_comment(place: Place) -> None:
    sql = place.definition("chunk_texts")
    hidden = sql.replace(
        "coalesce(sections.heading_path, '')",
        f"coalesce(sections.heading_path, '--', ({FOREVER} SELECT max(x) FROM n), '\n')",
    )
    assert hidden != sql
    place.define("chunk_texts", hidden)


@hostile
def columns_of_other_types(place: Place) -> None:
    sql = place.definition("documents")
    place.define("documents", sql.replace(") STRICT", ")"))
    place.run(
        "UPDATE documents SET title = x'00ff', summary = 7.5, metadata = x'ff', content = x'c0ff'"
    )
    place.define("documents", sql)


@hostile
def a_table_on_the_pages_of_another(place: Place) -> None:
    vectors = place.root("vectors")
    with contextlib.closing(apsw.Connection(str(place.file))) as connection:
        connection.pragma("writable_schema", True)
        connection.execute(
            "UPDATE sqlite_schema SET rootpage = ? WHERE name IN ('documents', 'sections')",
            (vectors,),
        )


@hostile
def a_hundred_thousand_views(place: Place) -> None:
    with contextlib.closing(apsw.Connection(str(place.file))) as connection:
        connection.pragma("writable_schema", True)
        connection.execute(
            "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) "
            "INSERT INTO sqlite_schema SELECT 'view', 'v' || x, 'v' || x, 0, "
            "'CREATE VIEW v' || x || ' AS SELECT 1' FROM n"
        )


@hostile
def a_definition_of_many_megabytes(place: Place) -> None:
    columns = ", ".join(f"'{number:0500}' AS c{number}" for number in range(1_900))
    place.run(f"CREATE VIEW large AS SELECT {columns}", f"CREATE VIEW larger AS SELECT {columns}")


@hostile
def an_older_version_whose_tables_are_views(place: Place) -> None:
    place.run(
        "PRAGMA user_version = 3",
        "ALTER TABLE chunks RENAME TO hidden",
        f"CREATE VIEW chunks AS {FOREVER} SELECT x AS chunk_id, x AS document_id, 1 AS position, "
        "'' AS heading_path, 1 AS start_line, 1 AS end_line, 0 AS start_character, "
        "0 AS end_character, '' AS extra_terms, x'' AS text_hash, NULL AS vector_id FROM n",
    )


statements("no version", "PRAGMA user_version = 0", "PRAGMA application_id = 0")

# ---- what it says of places and settings


@hostile
def sources_everywhere(place: Place) -> None:
    link = place.file.parent.parent / "docs" / ".." / "link"
    link.symlink_to(place.outside)
    sources = ["/etc", str(place.outside), "./link", "./../outside", "~/.ssh", "/proc/self", "/dev"]
    with contextlib.closing(apsw.Connection(str(place.file))) as connection:
        for number, source in enumerate(sources):
            connection.execute(
                "INSERT INTO collections (name, kind, source, created_at) "
                "VALUES (?, 'documents', ?, '')",
                (f"more-{number}", source),
            )
        connection.execute("UPDATE collections SET source = ? WHERE name = 'docs'", (sources[1],))


@hostile
def addresses_of_this_machine(place: Place) -> None:
    listed = {"sources": {"files": [{"url": "http://127.0.0.1:9/admin"}, "vane.md"]}}
    (place.file.parent.parent / "docs" / "manifest.json").write_text(json.dumps(listed))
    place.run(
        "UPDATE collections SET options = '{\"allow_private\": true}'",
        *(
            "INSERT INTO collections (name, kind, source, options, created_at) "
            f"VALUES ('{source}', 'documents', '{source}', '{{\"allow_private\": true}}', '')"
            for source in (
                *(
                    "http://127.0.0.1:9/",
                    "http://[::1]:9/manifest.json",
                    "git+http://127.0.0.1:9/a",
                ),
                *(f"git+file://{place.outside}", "git+ssh://-oProxyCommand=touch/x"),
            )
        ),
    )


statements(
    "settings of other shapes",
    "UPDATE collections SET include = '{\"a\": 1}', exclude = 'true', options = '[]'",
    "UPDATE documents SET metadata = '[1, 2'",
)
statements(
    "settings without end",
    f"UPDATE collections SET options = '{DEEP}'",
    f"UPDATE documents SET metadata = '{DEEP}'",
)
statements(
    "globs without end",
    "UPDATE collections SET include = (SELECT json_group_array(value || '**/*a*b*c*/**/*?*') FROM "
    f"(SELECT x AS value FROM ({FOREVER} SELECT x FROM n LIMIT 3000)))",
)
statements(
    "a model of another place",
    "UPDATE models SET name = '../../outside/model', sha256 = '', slope = 1e308",
)
statements(
    "a model whose scores are no numbers", "UPDATE models SET slope = 9e999, intercept = -9e999"
)
statements("a model that is too wide", "UPDATE models SET width = 1000000000000")
statements("a model without width", "UPDATE models SET width = -1")
statements(
    "paths that lead out",
    "UPDATE documents SET path = '../../outside/' || path WHERE path LIKE 'v%'",
    "UPDATE documents SET path = '/etc/' || path WHERE path LIKE 'g%'",
    "DELETE FROM file_accesses",
    "INSERT INTO file_accesses VALUES ('../../outside/diary.md', '', 1, 9223372036854775807, "
    "'9999-99-99', 0), ('/etc/passwd', '', 9223372036854775807, 1, '', 0)",
    "INSERT INTO projects (name, branch, path_hash, root, activated_at) "
    "VALUES ('windrose', 'main', '0', '/etc', '')",
)
statements(
    "names that steer a terminal",
    "UPDATE collections SET description = char(27) || '[2J', "
    "name = char(27) || ']0;' || collection_id || char(7)",
    "UPDATE documents SET title = char(27) || ']52;c;eA==' || char(7) || char(8238)",
)

# ---- values and counts

statements(
    "times that are no times",
    "UPDATE collections SET synced_at = 'x', created_at = '', version = char(0)",
    "UPDATE documents SET indexed_at = '99999-01-01', modified_ns = -9223372036854775808",
    "INSERT INTO sessions VALUES ('1', '', 'then', 'now', NULL), ('2', '', '', '', '')",
    "INSERT INTO session_events (session_id, kind, tool, detail, happened_at) "
    "VALUES ('1', 'read', '', '../../outside/diary.md', 'never')",
    "INSERT INTO tool_calls (tool, code, duration_ms, result_characters, called_at) "
    "VALUES ('read_file', '', 9e999, 9223372036854775807, ''), ('x', 'y', -9e999, -1, 'z')",
)

statements(
    "positions that are too large",
    f"UPDATE chunks SET start_character = {TOO_LARGE}, end_character = -{TOO_LARGE}, "
    f"start_line = -{TOO_LARGE}, end_line = {TOO_LARGE}, section = {TOO_LARGE}",
    f"UPDATE sections SET start_line = -{TOO_LARGE}, end_line = {TOO_LARGE}, "
    f"body_end_line = {TOO_LARGE}",
    f"UPDATE documents SET line_count = {TOO_LARGE}, character_count = {TOO_LARGE}",
)
statements(
    "vectors of other lengths",
    "UPDATE vectors SET vector = zeroblob(50000000) WHERE vector_id % 2",
    "UPDATE vectors SET vector = x'' WHERE NOT vector_id % 2",
    "UPDATE vector_slabs SET offsets = zeroblob(1), signs = zeroblob(30000000)",
    "UPDATE document_vectors SET vector = x'01'",
)
statements(
    "a text of a hundred megabytes",
    "UPDATE documents SET content = replace(hex(zeroblob(50000000)), '00', 'a ') "
    "WHERE path = 'vane.md'",
    "UPDATE chunks SET start_character = 99000000, end_character = 99999999",
)
statements(
    "texts that are no text",
    "UPDATE documents SET content = CAST(x'fffe00c3' AS TEXT), title = CAST(x'ff' AS TEXT)",
    "UPDATE sections SET heading = CAST(x'00' AS TEXT), heading_path = CAST(x'c3' AS TEXT)",
)
statements(
    "many rows",
    "INSERT INTO collections (name, kind, created_at) "
    f"SELECT 'c' || x, 'index', '' FROM ({FOREVER} SELECT x FROM n LIMIT 20000)",
    "INSERT INTO vocabulary SELECT 'vanee' || x, 'vane' "
    f"FROM ({FOREVER} SELECT x FROM n LIMIT 100000)",
    "INSERT INTO word_endings SELECT 'e' || x || 'enav' "
    f"FROM ({FOREVER} SELECT x FROM n LIMIT 100000)",
)
statements(
    "links in circles",
    "DELETE FROM citations",
    "INSERT INTO citations (source_document_id, target_document_id, target_url, target_key, kind, "
    "context, confidence, line) SELECT a.document_id, b.document_id, "
    "'file:///etc/passwd', 'path:../../outside/diary.md', 'inline', 'x', 1.0, 1 "
    f"FROM documents AS a, documents AS b, ({FOREVER} SELECT x FROM n LIMIT 100)",
)

# ---- the index of words

statements(
    "an index of words with other blocks",
    "UPDATE keyword_index_data SET block = randomblob(length(block)) WHERE id > 10",
)
statements(
    "an index of words that claims to be huge",
    "UPDATE keyword_index_data SET block = x'00000001ff0001010101ffffffff7fffffffff7f' "
    "WHERE id = 10",
    "UPDATE keyword_index_data SET block = x'ffffffffffffffff7f' WHERE id = 1",
)
statements(
    "an index of words with other settings",
    "INSERT OR REPLACE INTO keyword_index_config VALUES ('rank', 'evil(1)'), ('pgsz', 7), "
    "('automerge', 2000000000), ('crisismerge', -5), ('usermerge', 1000000)",
)

# ---- pages


@hostile
def pages_that_multiply(place: Place) -> None:
    _multiply(place, "documents")


@hostile
def pages_of_links_that_multiply(place: Place) -> None:
    _multiply(place, "citations")


@hostile
def pages_of_calls_that_multiply(place: Place) -> None:
    _multiply(place, "tool_calls")


@hostile
def pages_of_words_that_multiply(place: Place) -> None:
    _multiply(place, "keyword_index_data")


def _multiply(place: Place, table: str) -> None:
    """Six floors of a tree, each of whose 400 branches is the same page of the floor below."""
    root = place.root(table)
    count = os.path.getsize(place.file) // 4096
    leaf = count + 1
    place.page(leaf, place.page(root))
    for floor in range(1, 7):
        cells = [struct.pack(">I", leaf + floor - 1) + _varint(n + 1) for n in range(400)]
        content = b"".join(reversed(cells))
        starts, at = [], 4096
        for cell in cells:
            at -= len(cell)
            starts.append(at)
        head = struct.pack(">BHHHBI", 5, 0, len(cells), at, 0, leaf + floor - 1)
        pointers = b"".join(struct.pack(">H", start) for start in starts)
        page = (head + pointers).ljust(4096 - len(content), b"\0") + content
        place.page(root if floor == 6 else leaf + floor, page)
    first = bytearray(place.page(1))
    first[28:32] = struct.pack(">I", leaf + 5)
    first[92:96] = first[24:28]
    place.page(1, bytes(first))


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([128 | number >> 7, number & 127])


@hostile
def a_page_that_leads_to_itself(place: Place) -> None:
    root = place.root("chunks")
    page = bytearray(place.page(root))
    page[:12] = struct.pack(">BHHHBI", 5, 0, 0, 4096, 0, root)
    place.page(root, bytes(page))


@hostile
def free_pages_in_circles(place: Place) -> None:
    first = bytearray(place.page(1))
    first[32:40] = struct.pack(">II", 2, 1_000_000)
    place.page(1, bytes(first))
    place.page(2, struct.pack(">II", 2, 1_000).ljust(4096, b"\2"))


@hostile
def a_header_that_lies(place: Place) -> None:
    first = bytearray(place.page(1))
    first[56:60] = struct.pack(">I", 2)  # all texts are UTF-16
    first[20] = 255  # most of each page is reserved
    place.page(1, bytes(first))


@hostile
def texts_in_another_encoding(place: Place) -> None:
    first = bytearray(place.page(1))
    first[56:60] = struct.pack(">I", 3)
    place.page(1, bytes(first))


# ---- what lies beside it


@hostile
def the_log_of_another_file(place: Place) -> None:
    other = place.file.with_name("other.db")
    shutil.copy(place.file, other)
    with contextlib.closing(apsw.Connection(str(other))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.execute("UPDATE collections SET source = ?", (str(place.outside),))
        shutil.copy(f"{other}-wal", f"{place.file}-wal")
    other.unlink()


@hostile
def a_journal_that_names_a_file(place: Place) -> None:
    """SQLite 3.40 deletes the file that such a journal names."""
    name = os.fsencode(place.outside / "diary.md")
    magic = bytes.fromhex("d9d505f920a163d7")
    size = os.path.getsize(place.file) // 4096
    head = magic + struct.pack(">5I", 1, 7, size, 512, 4096)
    page = place.page(2)
    total = (7 + sum(page[at] for at in range(4096 - 200, 0, -200))) & 0xFFFFFFFF
    record = struct.pack(">I", 2) + page + struct.pack(">I", total)
    end = struct.pack(">I", (0x40000000 // 4096) + 1) + name
    end += struct.pack(">II", len(name), sum(name)) + magic
    Path(f"{place.file}-journal").write_bytes(head.ljust(512, b"\0") + record + end)


# ---- using them


class Outcome(NamedTuple):
    """What became of one use of a file."""

    what: str
    seconds: float  # of processor
    said: str  # "" for an answer, else what kept it from one


def sound_project(folder: Path) -> Place:
    """A project with documents and a sound file, and a folder outside of it."""
    project, outside = folder / "project", folder / "outside"
    (project / "docs").mkdir(parents=True)
    (project / ".kb").mkdir()
    outside.mkdir()
    (outside / "diary.md").write_text(f"# Diary\n\nThe {SECRET} is in the cellar.\n")
    for number in range(12):
        (project / "docs" / f"page-{number}.md").write_text(
            f"# Page {number}\n\nA gauge of station {number}, see [the vane](vane.md).\n"
        )
    (project / "docs" / "vane.md").write_text(
        "# Wind vane\n\nCalibrate the vane with the gauge.\n\n## Mast\n\nThe mast carries it.\n\n"
        + "The air is still and nothing else is said. " * 60
    )
    file = project / ".kb" / "kb.db"
    with open_session(
        Database(file), project=project, make_embedder=lambda _: HashEmbedder()
    ) as session:
        sync_collection(session.database, register(session.database, str(project / "docs")))
        call_tool(session, "search_add_document", {"doc_id": "note", "content": "A vane."})
        record_discovery(session.model, "We use a vane of brass", "", "mast")
        embed_pending(session.model)
    return Place(file, outside)


def use(place: Place) -> Iterator[Outcome]:
    """Everything that is done with a file that was just cloned."""
    project = place.file.parent.parent
    os.chdir(project)
    started = time.process_time()
    is_read = False
    try:
        database = Database(place.file, create=False)
    except Exception as error:  # noqa: BLE001 - told
        yield Outcome("open", time.process_time() - started, f"{type(error).__name__}: {error}")
    else:
        is_read = True
        yield Outcome("open", time.process_time() - started, "")
        with open_session(
            database, project=project, make_embedder=lambda _: HashEmbedder()
        ) as session:
            for name, values in CALLS:
                started = time.process_time()
                result = call_tool(session, name, values)
                said = str(result.content) if result.is_error else ""
                yield Outcome(name, time.process_time() - started, said)
                if SECRET in result.text and values.get("query") != SECRET:
                    yield Outcome(name, 0, f"INTERNAL_ERROR: the {SECRET} was read")
            started = time.process_time()
            with contextlib.suppress(Exception):
                for watcher in follow_folders(session.knowledge, session.model):
                    watcher.stop()
            yield Outcome("follow", time.process_time() - started, "")
    for words in COMMANDS if is_read else COMMANDS[:2]:
        yield _command(words)


def _command(words: Sequence[str]) -> Outcome:
    """What a command line did; it writes to the descriptors of the standard streams."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        os.dup2(out.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        started = time.process_time()
        code: object = None
        try:
            kb(list(words))
        except SystemExit as ended:
            code = ended.code
        seconds = time.process_time() - started
        texts = []
        for stream in (out, errors):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    said = texts[1] if code not in (0, 1) or "internal error" in texts[1] else ""
    if SECRET in texts[0]:
        said = f"internal error: the {SECRET} was read"
    return Outcome(" ".join(words), seconds, said)


def _in_child(place: Place) -> dict[str, Any]:
    """The outcomes in a process of its own, and what it opened or connected to outside."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(HANGS)
        pipe = os.fdopen(writing, "w")

        def tell(*outcome: object) -> None:
            print(json.dumps(outcome), file=pipe, flush=True)

        def note(event: str, values: tuple[Any, ...]) -> None:
            if event in ("open", "os.listdir", "os.scandir"):
                path = values[0] if isinstance(values[0], str | bytes) else "."
                name = os.path.realpath(os.fsdecode(path))
                if name.startswith((str(place.outside), "/etc/", "/proc/self/")):
                    tell("touched", 0, name)
            elif event == "socket.connect":
                tell("touched", 0, str(values[1]))

        log = io.StringIO()
        logging.basicConfig(stream=log, level="ERROR", force=True)
        sys.addaudithook(note)
        try:
            for outcome in use(place):
                tell(*outcome)
        except BaseException:  # noqa: BLE001 - told
            tell("failed", 0, traceback.format_exc()[-3000:])
        if "Traceback" in log.getvalue():
            tell("log", 0, log.getvalue()[-3000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        done = [json.loads(line) for line in pipe]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        done.append(["ended", HANGS, f"by signal {os.WTERMSIG(status)}"])
    touched = [said for what, _, said in done if what == "touched"]
    return {"done": [one for one in done if one[0] != "touched"], "touched": touched}


def main() -> None:
    """Print a line of JSON for each hostile file: its name, outcomes and what was touched."""
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or list(HOSTILE)
    sound_project(folder / "sound")
    os.environ["XDG_STATE_HOME"] = str(folder / "state of somebody else")
    for number, name in enumerate(names):
        shutil.copytree(folder / "sound", folder / str(number))
        place = Place(
            folder / str(number) / "project" / ".kb" / "kb.db", folder / str(number) / "outside"
        )
        HOSTILE[name](place)
        outcome = _in_child(place)
        outcome["kept"] = (place.outside / "diary.md").exists()
        print(json.dumps({"name": name, **outcome}), flush=True)
        shutil.rmtree(folder / str(number))


if __name__ == "__main__":
    main()
