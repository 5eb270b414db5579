"""The state of each link: resolved, external, not in the tree, or broken.

Where a link leads was settled when it was stored or by the last sync. Whether the section that it
names exists is looked up when somebody asks, in the text of the document that it leads to.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence

from kb.formats.anchors import WITH_ANCHORS, PageAnchors
from kb.sources.address import local
from kb.store.citations import has_label
from kb.store.connection import Connection, Row
from kb.store.contents import sections_of, title_and_text, with_source
from kb.text.headings import TERM_MARK
from kb.text.suffixes import PAGE_SUFFIX, text_format

STATES = ("resolved", "external", "not in the tree", "broken")
RESOLVED, EXTERNAL, ELSEWHERE, BROKEN = STATES
_STATES_OF_SCOPES = {
    "external": EXTERNAL,
    "file": RESOLVED,
    "elsewhere": ELSEWHERE,
    "url": EXTERNAL,
}
_TEMPLATE_END = re.compile(r"""["'`\s|}]""")


def link_states(connection: Connection, document_ids: Sequence[int] | None = None) -> list[Row]:
    """The links of these documents, or of all, by file and line.

    `links_of` with `state`, and `has_section`: whether what is behind `#` exists.
    """
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
        if target is None:
            state = state_of_key(row["target_key"], row["target_url"], is_there[source])
        elif fragment and text_format(row["target_path"]) in WITH_ANCHORS:
            if target not in anchors:
                anchors[target] = _anchors_of(connection, row)
            if not _has_section(connection, row, fragment, anchors[target]):
                is_made = anchors[target].may_have(fragment)
                has_section, state = False, ELSEWHERE if is_made else BROKEN
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
    _, text = title_and_text(connection, row["target_document_id"]) or ("", "")
    sections = sections_of(connection, row["target_document_id"])
    headings = [section["heading"] for section in sections]
    markup = text_format(row["target_path"])
    return PageAnchors.of(text, headings, markup, json.loads(row["generators"]))
