"""Folds copies and translations of a document among the hits: the best stays and names the others.

Copies have equal bytes, or a name that a sync program gives a second version
(`a (conflicted copy).md`, `a.sync-conflict-20260101-120000-ABC.md`). Translations have the language
in their path: `a.md` and `a.de.md`, or an `a.md` in each of the folders `en` and `ja`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kb.search.files import SearchedFile
from kb.search.merge import Hit
from kb.store.connection import Connection

MAX_FOLDED = 20  # hits checked beyond those shown
_LANGUAGE = (
    "(?:ar|az|bg|bn|cs|da|de|el|en|es|et|fa|fi|fr|he|hi|hr|hu|id|it|ja|ko|lt|lv|ms|nb|nl|no|pl|pt|ro|ru"
    "|sk|sl|sr|sv|ta|th|tr|uk|ur|uz|vi|yo|zh)(?:[-_][A-Za-z]{2,4})?"
)
_TRANSLATION = re.compile(rf"(?<![^/]){_LANGUAGE}/|[._]{_LANGUAGE}(?=\.\w+$)")
_CONFLICT = re.compile(
    r" ?\([^()/]*conflicted copy[^()/]*\)|[ ._-]conflicted copy[^/.]*|\.sync-conflict-[\w-]+"
    r"|[._]conflict[-_]\d[\w-]*",
    re.IGNORECASE,
)


def fold(_: SearchedFile, connection: Connection, hits: Sequence[Hit]) -> dict[int, list[str]]:
    """For each document of some hits, best first, the paths that it stands for, a step."""
    ids = list(dict.fromkeys(hit.document_id for hit in hits if hit.document_id is not None))
    if len(ids) < 2:
        return {document_id: [] for document_id in ids}
    rows = connection.tuples("documents_alike", document_ids=ids)
    documents = {document_id: rest for document_id, *rest in rows}
    shown: dict[tuple[int, object], int] = {}
    others: dict[int, list[str]] = {}
    for document_id in ids:
        if document_id not in documents:
            continue
        collection_id, path, content_hash = documents[document_id]
        keys = [(collection_id, content_hash), (collection_id, key_of(path))]
        first = next((shown[key] for key in keys if key in shown), document_id)
        for key in keys:
            shown.setdefault(key, first)
        if first == document_id:
            others[document_id] = []
        else:
            others[first].append(path)
    return others


def key_of(path: str) -> str:
    """What the paths of copies and translations of a document have in common."""
    return _TRANSLATION.sub("", _CONFLICT.sub("", path))


def copies(connection: Connection) -> list[tuple[str, ...]]:
    """Groups of documents that are copies, by bytes or name, each as `collection/path`."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, path, content_hash in connection.tuples("documents_by_hash"):
        groups.setdefault((name, content_hash), []).append(f"{name}/{path}")
        groups.setdefault((name, _CONFLICT.sub("", path), "by name"), []).append(f"{name}/{path}")
    return [*dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 1)]
