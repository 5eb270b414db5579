"""What assistants and people add by calls: discoveries, and documents of named indexes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kb.errors import DiscoveryNotFound, FileError, NoEmbeddings, UsageError
from kb.ingest.discoveries import all_discoveries, record_discovery
from kb.ingest.forget import find_discovery, forget_discovery
from kb.ingest.indexes import Index, add_document, create_index, find_index
from kb.library.workspace import Workspace
from kb.results.memory import (
    AddedDocument,
    CreatedIndex,
    Discoveries,
    Discovery,
    ForgottenDiscovery,
    IndexResults,
    IndexRow,
    ParsedQuery,
    RecordedDiscovery,
)
from kb.search.bm25 import IndexOptions, Ranking, rank_documents
from kb.search.families import search_discoveries
from kb.search.files import SearchedFile
from kb.search.highlight import excerpts, spans
from kb.search.query import Operand, Query, parse_query
from kb.store.connection import Connection, Row
from kb.store.contents import texts_of

MAX_HIGHLIGHTS = 3


class Memory(Workspace):
    def record(
        self,
        content: str,
        *,
        type: str = "",  # noqa: A002 - the name that every door has for it
        module: str = "",
        source: str = "",
        supersedes: str = "",
        allow_secrets: bool = False,
        session: str = "",
    ) -> RecordedDiscovery:
        """Keep something learned about a project, or merge it with what says the same.

        Args:
            content: one or two self-contained sentences, 10 to 1,000 characters.
            type: "pattern", "rule", "decision" or "issue"; by default judged by the words.
            module: what it is about; by default the whole project.
            supersedes: the id, or its beginning, of a discovery that this one corrects.
            allow_secrets: keep it though it looks like a password or key.

        Raises:
            UsageError: it is too short or long, or seems to contain a secret.
        """
        return record_discovery(
            *(self.model, content, type, module, source),
            supersedes=supersedes,
            allow_secrets=allow_secrets,
            session_id=session,
        )

    def recall(
        self,
        query: str = "",
        *,
        type: str = "",  # noqa: A002 - the name that every door has for it
        module: str = "",
        limit: int = 5,
    ) -> Discoveries:
        """The discoveries that answer a question, best first; without a question all, by module.

        Raises:
            NoEmbeddings, EmbeddingError: none has a vector yet, or the query cannot be embedded.
        """
        if not query:
            return _list_discoveries(self, type, module)
        answers, lost = self.ask_each(
            lambda file: search_discoveries(file, query, type, module, limit),
            unsaid=(NoEmbeddings,),
        )
        rows = [row for _, (part, _, _) in answers for row in part]
        rows.sort(key=lambda row: ("superseded_by" in row, -row["score"]))
        for before, row in pairwise(rows):  # scores never rise
            row["score"] = min(row["score"], before["score"])
        notices = dict.fromkeys([*(notice for _, (_, _, notice) in answers), lost])
        return Discoveries(
            results=[Discovery(**row) for row in rows[:limit]],
            total_found=sum(total for _, (_, total, _) in answers),
            notice=" ".join(filter(None, notices)) or None,
        )

    def has_discoveries(self) -> bool:
        """Whether anything was recorded in any file, with a vector or without."""
        return any(self.ask_all(_discoveries_of)[0].values())

    def forget(self, discovery: str) -> ForgottenDiscovery:
        """Delete a discovery with every trace of it, by its id or the beginning of that.

        Raises:
            UsageError: several match, or it is in a file that is only read.
        """
        try:
            return forget_discovery(self.database, discovery)
        except DiscoveryNotFound:
            for database in self.file.beside.databases():
                try:
                    with database.read() as connection:
                        row = find_discovery(connection, discovery)
                except (DiscoveryNotFound, UsageError, FileError):
                    continue
                command = shlex.join(["kb", "--db", str(database.path), "forget", row["id"]])
                raise UsageError(
                    f"{database.path} holds this discovery, and is only read here: `{command}` "
                    "forgets it"
                ) from None
            raise

    def search_index(self, query: str, *, index: str = "default", limit: int = 10) -> IndexResults:
        """The documents of a named index that match a query by its words, best first."""
        parsed = parse_query(query)
        answers, _ = self.ask_all(_search_index, index, parsed, limit)
        if results := [answer for answer in answers.values() if answer is not None]:
            return results[0]
        if (place := find_index(self.file, index)) is None:  # raises with what there is
            return IndexResults(
                results=[], total_matches=0, query_parsed=_shown(parsed, IndexOptions())
            )
        with place.database.read() as connection:  # whose name an alias hides
            return _search(connection, place, parsed, limit)

    def add_document(
        self,
        doc_id: str,
        content: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        index: str = "default",
    ) -> AddedDocument:
        """Put a text into a named index, replacing the one with the same id.

        Raises:
            UsageError: the content is blank or too large, or the metadata are not JSON.
        """
        return add_document(self.file, index, doc_id, content, dict(metadata or {}))

    def create_index(
        self, name: str, *, backend: str = "sqlite", lowercase: bool = True, min_length: int = 2
    ) -> CreatedIndex:
        """Make an empty named index.

        Args:
            backend: "sqlite", kept in the file, or "memory".
            lowercase: ignore case.
            min_length: leave out words of fewer characters.

        Raises:
            IndexExists, UnknownBackend: with what there is.
        """
        return create_index(self.file, name, backend, IndexOptions(lowercase, min_length))


def _discoveries_of(_: SearchedFile, connection: Connection) -> list[Row]:
    return all_discoveries(connection)


def _list_discoveries(base: Workspace, type_: str, module: str) -> Discoveries:
    parts, _ = base.ask_all(_discoveries_of)
    rows = [
        Discovery(**row)
        for part in parts.values()
        for row in part
        if type_ in ("", row["type"])
        and module.casefold() in ("", row.get("module", "").casefold())
    ]
    rows.sort(key=lambda row: (row.module or "", row.type, row.date))
    return Discoveries(results=rows, total_found=len(rows))


def _search_index(
    file: SearchedFile, connection: Connection, name: str, query: Query, limit: int
) -> IndexResults | None:
    """The answer of a file's index, a step; None if it has none of the name."""
    if (row := file.names.find(connection, name, ("index",))) is None:
        return None
    options = IndexOptions.from_json(row["options"])
    index = Index(name, file.database, row["collection_id"], options)
    return _search(connection, index, query, limit)


def _search(connection: Connection, index: Index, query: Query, limit: int) -> IndexResults:
    options = index.options
    if not (query.terms or query.must or query.must_not):
        return IndexResults(results=[], total_matches=0, query_parsed=_shown(query, options))
    ranking = rank_documents(connection, query, index.collection_id, options)
    best = ranking.documents[:limit]
    stored = {
        row["document_id"]: row
        for row in texts_of(connection, [document_id for document_id, _ in best])
    }
    rows: list[IndexRow] = []
    for document_id, score in best:
        row = stored[document_id]
        text, metadata = row["content"], json.loads(row["metadata"])
        matches = spans(connection, text, ranking.query, case=not options.lowercase)
        parts = excerpts(text, matches, most=MAX_HIGHLIGHTS, mark=False)
        of_row = {"doc_id": row["path"], "highlights": parts, "metadata": metadata}
        rows.append(IndexRow(**of_row, score=score))
    return IndexResults(
        results=rows,
        total_matches=len(ranking.documents),
        query_parsed=_shown(ranking.query, options),
        notice=" ".join(filter(None, (query.notice, _ignored_words(ranking, index)))) or None,
    )


def _shown(query: Query, options: IndexOptions) -> ParsedQuery:
    def text(operand: Operand) -> str:
        written = operand.text.lower() if options.lowercase else operand.text
        return written + ("*" if operand.is_prefix else "")

    return ParsedQuery(
        terms=[text(operand) for operand in query.terms],
        must=[text(operand) for operand in query.must if not operand.is_phrase],
        must_not=[text(operand) for operand in query.must_not],
        phrases=[text(operand) for operand in query.must if operand.is_phrase],
    )


def _ignored_words(ranking: Ranking, index: Index) -> str:
    if not ranking.ignored:
        return ""
    words = ", ".join(f'"{word}"' for word in dict.fromkeys(ranking.ignored))
    return (
        f'The index "{index.name}" leaves out words of fewer than {index.options.min_length} '
        f"characters: {words} matches nothing."
    )
