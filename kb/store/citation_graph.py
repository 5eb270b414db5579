"""The citation graph: who cites whom round some documents, how that is drawn, and the state of each
link: resolved, external, not in the tree, or broken.

Where a link leads was settled when it was stored or by the last sync. Whether the section that it
names exists is looked up when somebody asks, in the text of the document that it leads to.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kb.results.citations import BrokenLink, Graph, GraphEdge, GraphNode
from kb.sources.address import document_file, local
from kb.store.citations import has_label, with_sentences
from kb.store.connection import Connection, Row
from kb.store.contents import documents_shown, sections_of, title_and_text, with_source
from kb.text.headings import TERM_MARK
from kb.text.suffixes import PAGE_SUFFIX, text_format

if TYPE_CHECKING:
    from kb.formats.sites import PageAnchors

STATES = ("resolved", "external", "not in the tree", "broken")
RESOLVED, EXTERNAL, ELSEWHERE, BROKEN = STATES
_STATES_OF_SCOPES = {
    "external": EXTERNAL,
    "file": RESOLVED,
    "elsewhere": ELSEWHERE,
    "url": EXTERNAL,
}
_TEMPLATE_END = re.compile(r"""["'`\s|}]""")
ALL = -1  # a LIMIT
ENDS = ("source_document_id", "target_document_id")
MOST_OF_A_GROUP = 60  # documents, where there are several folders below
SENTENCES = 2  # of one document citing another
SENTENCE_CHARACTERS = 220
# Of all sentences together. Where there are more, each pair has one of them, shorter, as far as
# they reach: 2,000 documents with 29,000 pairs took 11.4 MB with all of them, and take 3.3.
MOST_CHARACTERS = 1_000_000
SHORT_SENTENCE = 120
DOCUMENT = "document"
KINDS = {EXTERNAL: "external", BROKEN: "missing", RESOLVED: "file", ELSEWHERE: "file"}
# What links without a target in the file lead to in others, by their key: rows of
# `documents_shown`, under row ids below zero.
Elsewhere = Mapping[str, Row]
NOWHERE: Elsewhere = {}
Address = Callable[[str, str, str], str]  # collection, id and source -> where to open it, or ""


def link_states(
    connection: Connection,
    document_ids: Sequence[int] | None = None,
    elsewhere: Elsewhere = NOWHERE,
) -> list[Row]:
    """The links of these documents, or of all, by file and line.

    `links_of` with `state`, and `has_section`: whether what is behind `#` exists.
    """
    from kb.formats.sites import WITH_ANCHORS  # here: a document's citations need none

    listed = None if document_ids is None else [*document_ids]
    rows = connection.rows("links_of", document_ids=listed)
    anchors: dict[int, PageAnchors] = {}
    is_there: dict[str, bool] = {}
    states = []
    for unlocated in rows:
        row = with_source(connection, unlocated)
        source = row["source"] or ""
        if source not in is_there:
            is_there[source] = local(source).exists()
        state, has_section = RESOLVED, True
        target, fragment = row["target_document_id"], row["target_url"].partition("#")[2]
        if "{" in row["target_url"]:  # a template goes on behind it: `{{< ref "b.md#part" >}}`
            fragment = _TEMPLATE_END.split(fragment)[0]
        if target is None and row["target_key"] in elsewhere:
            target = elsewhere[row["target_key"]]["document_id"]
        elif target is None:
            state = state_of_key(row["target_key"], row["target_url"], is_there[source])
        elif fragment and text_format(row["target_path"]) in WITH_ANCHORS:
            if target not in anchors:
                anchors[target] = _anchors_of(connection, row)
            if not _has_section(connection, row, fragment, anchors[target]):
                is_made = anchors[target].may_have(fragment)
                has_section, state = False, ELSEWHERE if is_made else BROKEN
        row["target_document_id"] = target
        states.append({**row, "state": state, "has_section": has_section})
    return states


def state_of_key(target_key: str, target_url: str, is_tree_there: bool) -> str:
    """The state of a link that leads to no document; `is_tree_there`: its folder still exists."""
    scope = target_key.partition(":")[0]
    if scope == "path" and not is_tree_there:
        name = target_url.partition("#")[0].partition("?")[0].rstrip("/")
        if posixpath.splitext(name)[1] and not PAGE_SUFFIX.search(name):
            return ELSEWHERE  # nobody can look whether a picture is there
    return _STATES_OF_SCOPES.get(scope, BROKEN)


def _has_section(connection: Connection, row: Row, fragment: str, anchors: PageAnchors) -> bool:
    if anchors.has(fragment, row["kind"]):
        return True
    # MyST knows a label in its whole project: `[](#label)`.
    return row["target_url"].startswith("#") and any(
        has_label(connection, label, row["collection_id"])
        for label in (fragment, TERM_MARK + fragment)
    )


def _anchors_of(connection: Connection, row: Row) -> PageAnchors:
    from kb.formats.sites import PageAnchors

    _, text = title_and_text(connection, row["target_document_id"]) or ("", "")
    sections = sections_of(connection, row["target_document_id"])
    headings = [section["heading"] for section in sections]
    markup = text_format(row["target_path"])
    return PageAnchors.of(text, headings, markup, json.loads(row["generators"]))


def citations_made(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    rows = connection.rows("citations_made", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citations_received(connection: Connection, document_id: int, limit: int = ALL) -> list[Row]:
    """The citations that other documents make to one, the surest first."""
    rows = connection.rows("citations_received", document_id=document_id, limit=limit)
    return with_sentences(connection, rows)


def citations_without_target(connection: Connection, keys: Sequence[str]) -> list[Row]:
    """The citations of some keys that lead to no document of the file."""
    rows = connection.rows("citations_without_target", keys=[*keys])
    return with_sentences(connection, rows)


def with_targets(rows: Iterable[Row], elsewhere: Elsewhere) -> list[Row]:
    """Citations, those without a target with what is elsewhere."""
    return [
        {**row, "target_document_id": elsewhere[row["target_key"]]["document_id"]}
        if row["target_document_id"] is None and row["target_key"] in elsewhere
        else row
        for row in rows
    ]


def citation_graph(
    connection: Connection,
    document_ids: Sequence[int] | None,
    depth: int = 1,
    *,
    with_states: bool = False,
    elsewhere: Elsewhere = NOWHERE,
) -> Graph:
    """The graph within some steps of some documents, both ways; of all with None.

    `with_states`: nodes and edges have the state of their links, an edge that of the worst.
    """
    if document_ids is None:
        rows = connection.rows("whole_citation_graph")
    else:
        rows = connection.rows("citation_graph", document_ids=[*document_ids], depth=depth)
    for row in rows:
        if row["target"] is None and row["target_key"] in elsewhere:
            row["target"] = elsewhere[row["target_key"]]["document_id"]
    states: dict[tuple[int, int | str], str] = {}
    if with_states:
        sources = sorted({row["source"] for row in rows})
        for row in link_states(connection, sources, elsewhere):
            pair = row["source_document_id"], row["target_document_id"] or row["target_key"]
            states[pair] = max(states.get(pair, ""), row["state"], key=("", *STATES).index)
    return _graph(connection, rows, document_ids or (), states, elsewhere)


def links_and_states(
    connection: Connection, collections: Iterable[str] = (), elsewhere: Elsewhere = NOWHERE
) -> tuple[list[BrokenLink], dict[str, int]]:
    """Broken links, by file and line, and how many links are in each state."""
    names = set(collections)
    rows = link_states(connection, None, elsewhere)
    rows = [row for row in rows if not names or row["collection"] in names]
    counts = Counter(row["state"] for row in rows)
    broken = [
        BrokenLink.from_dict(
            {
                **row,
                "document": row["path"],
                "target": row["target_url"],
                "missing": "target" if row["has_section"] else "section",
                "file": str(file) if os.path.isfile(file) else "",
            }
        )
        for row in rows
        if row["state"] == BROKEN
        for file in [document_file(row["source"] or "", row["path"])]
    ]
    return broken, {state: counts[state] for state in STATES}


def _graph(
    connection: Connection,
    rows: Sequence[Row],
    start: Sequence[int],
    states: Mapping[tuple[int, int | str], str],
    elsewhere: Elsewhere,
) -> Graph:
    ids = {*start, *(row["source"] for row in rows)}
    ids |= {row["target"] for row in rows if row["target"] is not None}
    documents = [*documents_shown(connection, ids).values(), *elsewhere.values()]
    documents = [row for row in documents if row["document_id"] in ids]
    names = {row["document_id"]: f"{row['collection']}/{row['path']}" for row in documents}
    titles = {names[row["document_id"]]: row["title"] for row in documents}
    collections = {row["document_id"]: row["collection"] for row in documents}
    # One spelling for every way in which a page's address was written.
    spelled: dict[str, str] = {}
    external: dict[str, str] = {}
    for row in rows:
        if row["target"] is None:
            key, url = row["target_key"], row["target_url"]
            spelled[key] = min(spelled.get(key, url), url)
            external[key] = place_of(key, spelled[key], collections[row["source"]])
    labels: dict[str, str] = {}  # of what is not a document
    for key, place in sorted(external.items()):
        while place in titles or place in labels:
            place += " (missing)"
        external[key] = place
        labels[place] = spelled[key]
    edges = [
        GraphEdge(
            names[row["source"]],
            external[row["target_key"]] if row["target"] is None else names[row["target"]],
            row["confidence"],
            states.get((row["source"], row["target"] or row["target_key"]), ""),
        )
        for row in rows
    ]
    edges.sort(key=lambda edge: (edge.source, edge.target))
    citing = {edge.source for edge in edges}
    cited = {edge.target for edge in edges}
    kinds = {id_: "target" if id_ in cited else "source" for id_ in titles}
    kinds |= dict.fromkeys(citing & cited, "both")
    state = RESOLVED if states else ""
    nodes = [GraphNode(id_, titles[id_], kinds[id_], False, state) for id_ in sorted(titles)]
    worst = {edge.target: edge.state for edge in edges}
    nodes += [
        GraphNode(place, url, "target", True, worst[place]) for place, url in sorted(labels.items())
    ]
    return Graph(nodes, edges)


def place_of(target_key: str, url: str, collection: str) -> str:
    """A unique name for a citation's target that is not a document.

    A path or label counts from the citing document's collection: two folders that each lack their
    own `missing.md` lack two files. A page is the same for everybody, however it is written.
    """
    scope, _, place = target_key.partition(":")
    is_of_collection = scope in ("path", "label", "file", "elsewhere")
    return f"{collection}/{place.partition('/')[2]}" if is_of_collection else url


def drawn_citations(
    connection: Connection,
    shown: Callable[[str], str] = lambda name: name,
    elsewhere: Elsewhere = NOWHERE,
) -> list[Row]:
    """What a picture of one file is made of; `shown` gives a collection's displayed name."""
    rows = []
    for cited in with_sentences(connection, connection.rows("drawn_citations")):
        row = with_source(connection, with_source(connection, cited), "target_source")
        row["collection"] = shown(row["collection"])
        if row["target_path"] is None and (other := elsewhere.get(row["target_key"])):
            row |= {"target_collection": other["collection"], "target_path": other["path"]}
            row |= {"target_title": other["title"], "target_source": other["folder"]}
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
