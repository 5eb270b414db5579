"""Archives of research reports and captured pages: brought up to date, searched, with citations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kb.formats.metadata import RESEARCH
from kb.library.searching import look_at_archives
from kb.library.shard_links import citations_from_elsewhere, ids_of, links_elsewhere
from kb.library.workspace import Workspace
from kb.results.archives import (
    ArchiveCitation,
    ArchiveCitations,
    ArchiveDocument,
    ArchiveResults,
    ArchiveRow,
    Highlight,
)
from kb.search.archives import ArchiveHit, FoundIn, search_archives
from kb.search.files import SearchedFile, Together, read_together
from kb.store.citation_graph import (
    ENDS,
    Elsewhere,
    citations_made,
    citations_received,
    with_targets,
)
from kb.store.connection import Connection, Row
from kb.store.contents import address_of, documents_shown

MAX_CITATIONS = 100  # of one document, one way


class Archives(Workspace):
    def sync_archives(self) -> tuple[bool, list[str]]:
        """Register and sync the archives that environment and project name, where they are new;
        whether one was synced, and what is wrong with the project's configuration. Raises
        SourceError if the environment names a folder that does not exist."""
        from kb.ingest.follow import sync_configured_archives  # here: it brings all that syncs

        folders, problems = self.project.archives()
        shards = self.list_shards(skips_unreadable=True)
        synced = [sync_configured_archives(base.file, folders) for base in shards]
        return any(synced), problems

    def search_archives(
        self, query: str, *, fuzzy: bool = True, limit: int = 10, citations: bool = False
    ) -> ArchiveResults:
        """Research reports and captured pages, best document first.

        Args:
            fuzzy: also match misspelt and longer words, ranked below exact matches.
            citations: add what each document cites and what cites it.
        """
        look_at_archives(self)
        files, lost = self.everywhere, self.lost
        hits, notice = search_archives(files, query, fuzzy=fuzzy, limit=limit)
        listed: Sequence[ArchiveCitations | None] = [None] * len(hits)
        cut = ""
        if citations:
            listed, cut = _citations(files, hits)
        return ArchiveResults(
            results=[_row(*hit, part) for hit, part in zip(hits, listed, strict=True)],
            notice=" ".join(filter(None, [notice, lost])) or None,
            citations_cut=cut,
        )


def _citations(
    files: Sequence[SearchedFile], hits: Sequence[FoundIn]
) -> tuple[list[ArchiveCitations], str]:
    """What each document cites and what cites it, in order, and a notice if that was cut."""
    names = [
        file.names.everywhere(f"{hit.row['collection']}/{hit.row['path']}") for file, hit in hits
    ]

    def read(together: Together) -> dict[SearchedFile, dict[str, tuple[ArchiveCitations, bool]]]:
        elsewhere = links_elsewhere(together, names)
        received = citations_from_elsewhere(together, names)
        return together.each(_citations_of, names, received, of=elsewhere)

    answers, _ = read_together(files, read)
    none = ArchiveCitations(citing=[], cited=[]), False  # its file went meanwhile
    of_names = {name: part for answer in answers.values() for name, part in answer.items()}
    parts = [of_names.get(name, none) for name in names]
    is_cut = any(is_cut for _, is_cut in parts)
    cut = f"of a document's citations the first {MAX_CITATIONS} are listed" if is_cut else ""
    return [citations for citations, _ in parts], cut


def _citations_of(
    file: SearchedFile,
    connection: Connection,
    names: Sequence[str],
    from_elsewhere: Mapping[str, Sequence[Row]],
    elsewhere: Elsewhere,
) -> dict[str, tuple[ArchiveCitations, bool]]:
    """The first citations of some documents of a file, and whether there are more, a step."""
    most = MAX_CITATIONS + 1
    ids = ids_of(file, connection, names)
    made = {n: with_targets(citations_made(connection, i, most), elsewhere) for n, i in ids.items()}
    received = {name: citations_received(connection, id_, most) for name, id_ in ids.items()}
    rows = [row for ways in (made, received) for way in ways.values() for row in way]
    shown = documents_shown(connection, {row[end] for row in rows for end in ENDS} - {None})
    called = file.names.of_documents(shown)
    called |= file.names.of_documents({r["document_id"]: r for r in elsewhere.values()})
    citations = {}
    for name in ids:
        listed = [
            [_citation(row, called[row[ENDS[0]]], called.get(row[ENDS[1]])) for row in way[name]]
            for way in (made, received)
        ]
        if others := from_elsewhere.get(name, ()):
            listed[1] += [_citation(row, row["source"], name) for row in others]
            listed[1].sort(key=lambda row: (-row.confidence, row.source_id))
        citing, cited = (way[:MAX_CITATIONS] for way in listed)
        is_cut = max(map(len, listed)) > MAX_CITATIONS
        citations[name] = ArchiveCitations(citing=citing, cited=cited), is_cut
    return citations


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


def _citation(row: Row, source: str, target: str | None) -> ArchiveCitation:
    return ArchiveCitation(
        source_id=source,
        target_id=target,
        target_url=row["target_url"],
        context=row["context"],
        confidence=row["confidence"],
    )
