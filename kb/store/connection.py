"""One SQLite connection, which runs statements by their names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apsw

from kb.store.statements import statement

# As in schema.sql, beneath porter: the words of a text before they are stemmed.
TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co M*"]

Row = dict[str, Any]
IndexedRow = apsw.FTS5ExtensionApi  # a row of the keyword index, for functions of it


class Connection:
    """One SQLite connection that runs statements by their names."""

    def __init__(self, connection: apsw.Connection, folder: str = "", project: str = "") -> None:
        self.apsw = connection
        # What sources of this file are relative to, and the project whose file it is: see
        # `kb.sources.address`. Both absolute, "" for none.
        self.folder = folder
        self.project = project
        self._tokenizers: dict[bool, apsw.FTS5Tokenizer] = {}
        self._kept: dict[str, tuple[tuple[int, int], Any]] = {}
        self._known_runs: set[bytes] = set()
        self._known_version = 0
        self._index_functions: set[str] = set()

    def kept(self, name: str) -> Any:
        """What was kept under a name, unless the file has changed since; else None.

        Call it inside the read or write that uses it.
        """
        stamp, value = self._kept.get(name, (None, None))
        return value if stamp == self._stamp() else None

    def keep(self, name: str, value: Any) -> None:
        """Keep what was read in this transaction until the file changes."""
        self._kept[name] = self._stamp(), value

    def _stamp(self) -> tuple[int, int]:
        """Changes with every change of the file: by others, and by this connection."""
        return self._version(), self.apsw.total_changes()

    def _version(self) -> int:
        """Changes with every change of the file by others."""
        version: Any = self.apsw.pragma("data_version")
        return int(version)

    def known_runs(self) -> set[bytes]:
        """What the writer remembers to have added to the vocabulary; for it to add to.

        Empty again when another connection has written, which may have taken words out.
        """
        if (version := self._version()) != self._known_version:
            self._known_runs, self._known_version = set(), version
        return self._known_runs

    def forget_known_runs(self) -> None:
        """What was added may be rolled back, or will not be asked for soon."""
        self._known_runs = set()

    def tokenize(self, text: str, *, stem: bool = False) -> list[tuple[int, int, str]]:
        """The terms of a text as the keyword index cuts and folds them, in order.

        Args:
            stem: the index's own terms; else the folded words that they are stems of.

        Returns:
            (start, end, term) each, in characters.
        """
        utf8 = text.encode()
        found: Any = self._tokenizer(stem)(
            utf8, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_colocated=False
        )
        if len(utf8) == len(text):
            return list(found)
        terms: list[tuple[int, int, str]] = []
        byte = character = 0
        for first, last, term in found:
            start = character + len(utf8[byte:first].decode())
            byte, character = last, start + len(utf8[first:last].decode())
            terms.append((start, character, term))
        return terms

    def stems(self, text: str) -> list[str]:
        """The keyword index's terms of a text, in order: 7 us a passage, `tokenize` takes 18."""
        found: Any = self._tokenizer(True)(
            text.encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return list(found)

    def _tokenizer(self, stem: bool) -> apsw.FTS5Tokenizer:
        if stem not in self._tokenizers:
            name, *arguments = ["porter", *TOKENIZER] if stem else TOKENIZER
            self._tokenizers[stem] = self.apsw.fts5_tokenizer(name, arguments)
        return self._tokenizers[stem]

    def add_index_function(self, function: Callable[..., float]) -> None:
        """Let statements call a function of rows of the keyword index by its name.

        Args:
            function: gets an `IndexedRow` and what follows the index in the call.
        """
        name = function.__name__
        if name not in self._index_functions:
            self.apsw.register_fts5_function(name, function)
            self._index_functions.add(name)

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """All result rows, each with the SELECT's aliases as keys."""
        cursor = self.apsw.execute(statement(name), parameters)
        try:
            names = [column for column, _ in cursor.get_description()]
        except apsw.ExecutionCompleteError:  # no row: apsw keeps no description
            return []
        try:
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except BaseException:
            # The error's traceback keeps the cursor; one that is open keeps the file from writers.
            cursor.close(True)
            raise

    def row(self, name: str, /, **parameters: Any) -> Row | None:
        """The first result row, or None."""
        found = self.rows(name, **parameters)
        return found[0] if found else None

    def tuples(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """All result rows as tuples, for bulk reads."""
        return self.apsw.execute(statement(name), parameters).fetchall()

    def iterate(self, name: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Result rows as tuples one by one, for a caller who may stop before the last."""
        yield from self.apsw.execute(statement(name), parameters)

    def value(self, name: str, /, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        for row in self.apsw.execute(statement(name), parameters):
            return row[0]
        return None

    def run(self, name: str, /, **parameters: Any) -> int:
        """Execute; the number of rows it changed."""
        self.apsw.execute(statement(name), parameters).fetchall()
        return self.apsw.changes()

    def run_many(self, name: str, /, parameters: Iterable[dict[str, Any]]) -> None:
        """Execute once for each set of parameters."""
        self.apsw.executemany(statement(name), parameters)

    def changes(self) -> int:
        """How many rows this connection has changed, those of an index's own tables among them."""
        return self.apsw.total_changes()

    def release_pages(self, kept: float) -> None:
        """Give pages that nothing uses back to the disk.

        Args:
            kept: a share of the file that may stay unused.
        """
        free: Any = self.apsw.pragma("freelist_count")
        pages: Any = self.apsw.pragma("page_count")
        if (surplus := int(free - kept * pages)) > 0:
            self.apsw.execute(f"PRAGMA incremental_vacuum({surplus})").fetchall()

    def size(self) -> tuple[int, int]:
        """Bytes of the file, and of a page."""
        page: Any = self.apsw.pragma("page_size")
        pages: Any = self.apsw.pragma("page_count")
        return page * pages, page

    def last_id(self) -> int:
        return self.apsw.last_insert_rowid()

    def versions(self) -> dict[str, str]:
        """Of SQLite and the vector extension."""
        vector = self.value("vector_extension_version")
        return {"sqlite": apsw.sqlite_lib_version(), "vector": vector}

    def integrity(self, limit: int) -> list[str]:
        """What SQLite finds wrong with pages, rows and indexes; reads the whole file."""
        # FTS5 remembers where an index's parts lie, and asks whether another connection has merged
        # them only before a query: without one it takes those that are gone for lost.
        with contextlib.suppress(apsw.Error):
            self.tuples("refresh_keyword_index")
        found: Any = self.apsw.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
        return [message for (message,) in found if message != "ok"]

    def broken_references(self) -> list[tuple[str, str]]:
        """Table and missing parent of every row that refers to a row that is not there."""
        found: Any = self.apsw.execute("PRAGMA foreign_key_check").fetchall()
        return [(child, parent) for child, _, parent, _ in found]
