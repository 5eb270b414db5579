"""The best evidence for a question, packed into a number of characters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Unpack

from kb.library.searching import answer
from kb.library.workspace import Workspace
from kb.results.context import (
    ContextDocument,
    ContextPart,
    ContextResults,
    OmittedPart,
    require_length,
)
from kb.results.filters import FilterOptions
from kb.search.files import SearchedFile, Together
from kb.search.filters import DocumentFilter
from kb.search.packing import Candidate, PackedText, Passage, heading_of, pack
from kb.search.run import SearchRequest
from kb.store.connection import Connection
from kb.store.contents import (
    Origins,
    passages_of_documents,
    sections_of_documents,
    texts_of,
)

MAX_CANDIDATES = 50
MAX_OMITTED = 8
NAMES = "collection", "collectionId", "documentId", "documentTitle", "url"  # of a document
OMITTED_SHARES = 8, 5  # what was left out takes up to 1/8 of a long reply, 1/5 of a short
OMITTED_CHARACTERS = 200  # of which a short reply is one

Key = tuple[SearchedFile, int]  # of a document: its file and row id


class Packing(Workspace):
    def context(
        self,
        query: str,
        *,
        collections: Sequence[str] = (),
        max_characters: int = 3000,
        **filters: Unpack[FilterOptions],
    ) -> ContextResults:
        """The best evidence for a question, packed into so many characters of JSON.

        Short sections come whole, of longer ones the passage with its neighbours, by document;
        what did not fit is listed with its lines.

        Args:
            max_characters: 500 to 40,000.

        Raises:
            UsageError: `max_characters` is out of bounds, or a filter is malformed.
        """
        require_length(max_characters, "maxCharacters")
        shown = DocumentFilter.of(filters)
        request = SearchRequest(
            query, collections, MAX_CANDIDATES, needs_distances=False, documents=shown
        )
        (result,), notice = answer(self, [request])
        rows: dict[Key, Any] = {}  # of a search, by the key of their document
        candidates = []
        for file, hit, row in zip(result.files, result.hits, result.rows, strict=True):
            key = (file, hit.document_id or 0)
            rows.setdefault(key, row)
            candidates.append(Candidate(key, row["chunkIndex"], hit.score))
        of_files: dict[SearchedFile, dict[int, Any]] = {}
        for (file, document), row in rows.items():
            of_files.setdefault(file, {})[document] = row
        together = Together([*of_files])
        with together.read():
            loaded = together.each(_load, of=of_files)
        texts = {
            (file, document_id): text
            for file, (_, of_file) in loaded.items()
            for document_id, text in of_file.items()
        }
        candidates = [
            candidate
            for candidate in candidates
            # A document that changed between the two reads has other passages.
            if candidate.document in texts
            and candidate.position <= len(texts[candidate.document].passages)
        ]
        usual, short = (max_characters // share for share in OMITTED_SHARES)
        room_for_omitted = max(usual, min(OMITTED_CHARACTERS, short))
        omitted = pack(candidates, texts, max_characters - room_for_omitted - len(notice))

        documents = [
            _document(rows[key], text, loaded[key[0]][0])
            for key, text in texts.items()
            if text.parts
        ]
        documents.sort(key=lambda document: -document.score)
        if shown.sort == "date":
            documents.sort(key=lambda document: document.date or "", reverse=True)
        return ContextResults(
            documents=documents,
            more=_omitted(omitted, rows, texts, room_for_omitted),
            notice=notice or None,
        )


def _document(row: Mapping[str, Any], text: PackedText, origins: Origins) -> ContextDocument:
    parts = []
    for part in text.parts:
        opening = text.passages[part.first]
        first = opening.start_line
        last = first + text.text[opening.start : part.end].rstrip().count("\n")
        place = origins.location(opening.document_id, first, last)
        place |= {"start_line": first, "end_line": last, "score": part.score}
        heading = heading_of(text, part.first) or None
        parts.append(ContextPart(**place, heading=heading, content=part.text_of(text)))
    score = max(part.score for part in parts)
    return ContextDocument.from_dict({**row, "score": score, "parts": parts})


def _load(
    _: SearchedFile, connection: Connection, rows: Mapping[int, Mapping[str, Any]]
) -> tuple[Origins, dict[int, PackedText]]:
    """Documents to take parts from, by id, and their origins; `rows` holds a hit of each."""
    document_ids = list(rows)
    passages = {
        document_id: [Passage(*row) for row in group]
        for document_id, group in groupby(
            passages_of_documents(connection, document_ids), itemgetter(0)
        )
    }
    sections = {
        document_id: list(group)
        for document_id, group in groupby(
            sections_of_documents(connection, document_ids), itemgetter("document_id")
        )
    }
    return Origins(connection, document_ids), {
        row["document_id"]: PackedText(
            sum(len(rows[row["document_id"]].get(key, "")) for key in NAMES),
            row["content"],
            passages.get(row["document_id"], []),
            sections.get(row["document_id"], []),
        )
        for row in texts_of(connection, document_ids)
    }


def _omitted(
    candidates: Sequence[Candidate],
    rows: Mapping[Key, Mapping[str, Any]],
    texts: dict[Key, PackedText],
    max_characters: int,
) -> list[OmittedPart]:
    """Where the best of what was left out is, each section once."""
    omitted: dict[tuple[object, ...], OmittedPart] = {}
    for candidate in candidates:
        text, row = texts[candidate.document], rows[candidate.document]
        passage = text.passages[candidate.position - 1]
        heading = heading_of(text, candidate.position - 1)
        lines = {"startLine": passage.start_line, "endLine": passage.end_line}
        place = {"heading": heading or None, **lines, "score": candidate.score}
        part = OmittedPart.from_dict({**row, **place})
        key = (candidate.document, heading)
        if key in omitted:
            continue
        max_characters -= len(json.dumps(part.to_dict(), ensure_ascii=False)) + 1
        if max_characters < 0 or len(omitted) == MAX_OMITTED:
            break
        omitted[key] = part
    return [*omitted.values()]
