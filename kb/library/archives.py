"""Archives of research reports and captured pages: brought up to date, searched, with citations."""

from __future__ import annotations

from collections.abc import Sequence

from kb.formats.metadata import RESEARCH
from kb.library.searching import look_at_archives
from kb.library.workspace import Workspace
from kb.results.archives import (
    ArchiveCitation,
    ArchiveCitations,
    ArchiveDocument,
    ArchiveResults,
    ArchiveRow,
    Highlight,
)
from kb.search.archives import NO_ARCHIVE, ArchiveHit, search_archives
from kb.search.files import SearchedFile
from kb.store.citation_graph import ENDS, citations_made, citations_received
from kb.store.connection import Row
from kb.store.contents import address_of, documents_shown

MAX_CITATIONS = 100  # of one document, one way


class Archives(Workspace):
    def sync_archives(self) -> tuple[bool, list[str]]:
        """Register and sync the archives that environment and project name, where they are new;
        whether one was synced, and what is wrong with the project's configuration. Raises
        SourceError if the environment names a folder that does not exist."""
        from kb.ingest.follow import sync_configured_archives  # here: it brings all that syncs

        folders, problems = self.project.archives()
        return sync_configured_archives(self.file, folders), problems

    def search_archives(
        self, query: str, *, fuzzy: bool = True, limit: int = 10, citations: bool = False
    ) -> ArchiveResults:
        """Research reports and captured pages, best document first.

        Args:
            fuzzy: also match misspelt and longer words, ranked below exact matches.
            citations: add what each document cites and what cites it.
        """
        look_at_archives(self)
        answers, lost = self.ask_each(
            lambda file: search_archives(file, query, fuzzy=fuzzy, limit=limit)
        )
        notices = {notice for _, (_, notice) in answers}
        if len(notices) > 1:
            notices.discard(NO_ARCHIVE)
        hits = [(file, hit) for file, (part, _) in answers for hit in part]
        if len(answers) > 1:
            hits.sort(key=lambda pair: -pair[1].score)
        hits = hits[:limit]
        listed: Sequence[ArchiveCitations | None] = [None] * len(hits)
        cut = ""
        if citations:
            listed, cut = _citations(hits)
        return ArchiveResults(
            results=[_row(*hit, part) for hit, part in zip(hits, listed, strict=True)],
            notice=" ".join(filter(None, [*sorted(notices), lost])) or None,
            citations_cut=cut,
        )


def _citations(
    hits: Sequence[tuple[SearchedFile, ArchiveHit]],
) -> tuple[list[ArchiveCitations], str]:
    """What each document cites and what cites it, in order, and a notice if that was cut."""
    ids: dict[SearchedFile, list[int]] = {}
    for file, hit in hits:
        ids.setdefault(file, []).append(hit.row["document_id"])
    citations: dict[tuple[SearchedFile, int], ArchiveCitations] = {}
    is_cut = False
    for file in ids:
        most = MAX_CITATIONS + 1
        with file.database.read() as connection:
            ways = {
                id_: (
                    citations_made(connection, id_, most),
                    citations_received(connection, id_, most),
                )
                for id_ in ids[file]
            }
            rows = [row for way in ways.values() for row in (*way[0], *way[1])]
            shown = documents_shown(connection, {row[end] for row in rows for end in ENDS} - {None})
        names = file.names.of_documents(shown)
        for id_, (made, received) in ways.items():
            is_cut |= max(len(made), len(received)) > MAX_CITATIONS
            citations[file, id_] = ArchiveCitations(
                citing=[_citation(row, names) for row in made[:MAX_CITATIONS]],
                cited=[_citation(row, names) for row in received[:MAX_CITATIONS]],
            )
    cut = f"of a document's citations the first {MAX_CITATIONS} are listed" if is_cut else ""
    return [citations[file, hit.row["document_id"]] for file, hit in hits], cut


def _row(file: SearchedFile, hit: ArchiveHit, citations: ArchiveCitations | None) -> ArchiveRow:
    row = hit.row
    folder: str = row["folder"] or row["collection"]
    name = folder.rstrip("/").rpartition("/")[2] or folder
    return ArchiveRow(
        document=ArchiveDocument(
            id=file.names.everywhere(f"{row['collection']}/{row['path']}"),
            title=row["title"],
            path=f"{name}/{row['path']}",
            url=address_of(row, row["path"]),
            source=row["source"] or RESEARCH,
            date=row["date"] or "",
            score=round(hit.score, 4),
            collection=file.names.everywhere(row["collection"]),
            start_line=hit.passage["start_line"],
            end_line=hit.passage["end_line"],
        ),
        highlights=[Highlight(field=name, snippets=pieces) for name, pieces in hit.highlights],
        citations=citations,
    )


def _citation(row: Row, names: dict[int, str]) -> ArchiveCitation:
    target = row["target_document_id"]
    return ArchiveCitation(
        source_id=names[row["source_document_id"]],
        target_id=names[target] if target is not None else None,
        target_url=row["target_url"],
        context=row["context"],
        confidence=row["confidence"],
    )
