"""The citation graph as drawn: documents by folder, sentences that cite, and broken links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kb.sources.address import local
from kb.store.citation_graph import place_of
from kb.store.citations import with_sentences
from kb.store.connection import Connection, Row
from kb.store.contents import with_source
from kb.store.link_states import BROKEN, ELSEWHERE, EXTERNAL, RESOLVED, state_of_key

MOST_OF_A_GROUP = 60  # documents, where there are several folders below
SENTENCES = 2  # of one document citing another
SENTENCE_CHARACTERS = 220
# Of all sentences together. Where there are more, each pair has one of them, shorter, as far as
# they reach: 2,000 documents with 29,000 pairs took 11.4 MB with all of them, and take 3.3.
MOST_CHARACTERS = 1_000_000
SHORT_SENTENCE = 120
DOCUMENT = "document"
KINDS = {EXTERNAL: "external", BROKEN: "missing", RESOLVED: "file", ELSEWHERE: "file"}

Address = Callable[[str, str, str], str]  # collection, id and source -> where to open it, or ""


def graph_picture(
    connection: Connection, address: Address, within: Collection[str] | None = None
) -> dict[str, Any]:
    """Nodes and edges of one file; arguments and result as those of `picture_of`."""
    return picture_of(drawn_citations(connection), address, within)


def drawn_citations(
    connection: Connection, shown: Callable[[str], str] = lambda name: name
) -> list[Row]:
    """What a picture of one file is made of; `shown` gives a collection's displayed name."""
    rows = []
    for cited in with_sentences(connection, connection.rows("drawn_citations")):
        row = with_source(connection, with_source(connection, cited), "target_source")
        row["collection"] = shown(row["collection"])
        if row["target_path"] is not None:
            row["target_collection"] = shown(row["target_collection"])
        rows.append(row)
    return rows


def picture_of(
    citations: Iterable[Row], address: Address, within: Collection[str] | None = None
) -> dict[str, Any]:
    """Nodes and edges with all that a picture shows of them.

    Args:
        citations: of `drawn_citations`, of one file or several.
        address: where a document can be opened.
        within: ids (COLLECTION/path) of the documents to show; by default all with a citation.

    Returns:
        `nodes`, each with `id`, `label`, `kind`, `group` and `href` where it has one, documents
        first; `edges`, one for each pair, each with `from` and `to`, which are places in `nodes`,
        `confidence`, and `said`: lines and sentences in which the one cites the other. A line has
        no sentence where all of them would be too much.
    """
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    spelled: dict[str, str] = {}  # one spelling for every way in which an address was written
    for row in citations:
        source = f"{row['collection']}/{row['path']}"
        if within is not None and source not in within:
            continue
        if row["target_path"] is not None:
            target = f"{row['target_collection']}/{row['target_path']}"
            if within is not None and target not in within:
                continue
            node = _document(row, "target_", address)
        else:
            url = spelled.setdefault(row["target_key"], row["target_url"])
            target = "\0" + place_of(row["target_key"], url, row["collection"])
            written = row["target_url"]
            is_there = local(row["source"] or "").exists()
            kind = KINDS[state_of_key(row["target_key"], written, is_there)]
            href = written if written.casefold().startswith(("http://", "https://")) else ""
            node = {"label": written, "kind": kind, "group": "", "href": href}
        nodes.setdefault(source, _document(row, "", address))
        nodes.setdefault(target, node)
        edge = edges.setdefault(
            (source, target), {"from": source, "to": target, "confidence": 0.0, "said": []}
        )
        edge["confidence"] = max(edge["confidence"], row["confidence"])
        if len(edge["said"]) < SENTENCES and row["context"]:
            text = " ".join(row["context"].split())[:SENTENCE_CHARACTERS]
            edge["said"].append({"line": row["line"], "text": text})
    _name_groups([node for node in nodes.values() if node["kind"] == DOCUMENT])
    ordered = sorted(nodes.items(), key=lambda item: (item[1]["kind"] != DOCUMENT, item[0]))
    places = {id_: place for place, (id_, _) in enumerate(ordered)}
    _shorten([edge["said"] for edge in edges.values()])
    return {
        "nodes": [{"id": id_.replace("\0", "→ "), **node} for id_, node in ordered],
        "edges": [
            {**edge, "from": places[edge["from"]], "to": places[edge["to"]]}
            for edge in edges.values()
        ],
    }


def _shorten(sentence_lists: Sequence[list[dict[str, Any]]]) -> None:
    """Keep the sentences that a page can hold, spread evenly over all pairs."""
    texts = (entry["text"] for entries in sentence_lists for entry in entries)
    if sum(map(len, texts)) <= MOST_CHARACTERS:
        return
    lists = [entries for entries in sentence_lists if entries]
    fitting = min(len(lists), MOST_CHARACTERS // SHORT_SENTENCE)
    for number, entries in enumerate(lists):
        del entries[1:]
        # Spread evenly over all pairs, which lie in the order of the citing documents.
        if (number + 1) * fitting // len(lists) > number * fitting // len(lists):
            entries[0]["text"] = entries[0]["text"][:SHORT_SENTENCE]
        else:
            del entries[0]["text"]


def _name_groups(documents: Collection[dict[str, Any]]) -> None:
    """Name each group by its first folder, or deeper ones where that would hold most documents."""
    groups = {id(node): tuple(node["group"][:2]) for node in documents}
    for depth in (3, 4):
        sizes = Counter(groups.values())
        for node in documents:
            if sizes[groups[id(node)]] > max(MOST_OF_A_GROUP, len(documents) / 4):
                groups[id(node)] = tuple(node["group"][:depth])
    has_one = len({node["group"][0] for node in documents}) == 1
    for node in documents:
        names = groups[id(node)]
        node["group"] = "/".join(names[1:] if has_one and len(names) > 1 else names)


def _document(row: Row, prefix: str, address: Address) -> dict[str, Any]:
    collection, path = row[f"{prefix}collection"], row[f"{prefix}path"]
    return {
        "label": row[f"{prefix}title"] or path,
        "kind": DOCUMENT,
        "group": (collection, *path.split("/")[:-1]),
        "href": address(collection, path, row[f"{prefix}source"] or ""),
    }
