"""Implicit citations: paragraphs that two research reports share almost word for word.

Two paragraphs are alike when their sets of words have a Jaccard similarity above 0.7. Not every
pair is compared: the candidates come from MinHash signatures (Broder 1997) in bands (locality-
sensitive hashing: Indyk, Motwani 1998). With 20 bands of 4 rows a pair of similarity s has a band
in common with probability 1 - (1 - s^4)^20: 0.996 at 0.7, 0.9999 at 0.8, 0.002 at the 0.1 of
unrelated paragraphs. So each paragraph is compared with few others, however many there are, and
the similarity itself is exact.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kb.formats.metadata import RESEARCH
from kb.store.citations import insert_citations
from kb.store.connection import Connection, Row
from kb.text.terms import bigrams, is_unspaced, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kb.store.documents import NewDocument

THRESHOLD = 0.7
BANDS, ROWS = 20, 4
FEWEST_WORDS = 12  # different ones; shorter paragraphs are alike by chance
MOST_CANDIDATES = 200  # a paragraph with more relatives is boilerplate: the oldest are compared
MOST_SIMILAR = 20  # reports that one report is compared to be like, the most alike
CONTEXT_CHARACTERS = 200
_KINDS = frozenset({"paragraph", "list_item", "quote"})


@dataclass(frozen=True, slots=True)
class _Paragraph:
    line: int
    text: str
    words: frozenset[int]  # 32-bit hashes
    signatures: tuple[int, ...]  # one a band


def store_similar(
    connection: Connection, document_id: int, new: NewDocument, metadata: Mapping[str, Any]
) -> None:
    """Store a report's paragraphs, and the implicit citations from it and to it.

    Of two reports the younger cites the older. No other document has either.
    """
    archive = metadata.get("archive")
    if not isinstance(archive, dict) or archive.get("source") != RESEARCH:
        return
    best: dict[int, tuple[float, _Paragraph, Row]] = {}
    for paragraph in _paragraphs(new):
        count = len(paragraph.words)
        for row in connection.rows(
            "paragraphs_with_signatures",
            signatures=paragraph.signatures,
            least=count * THRESHOLD,
            most=count / THRESHOLD,
            limit=MOST_CANDIDATES,
        ):
            shared = len(paragraph.words.intersection(array("I", row["words"])))
            similarity = shared / (count + row["word_count"] - shared)
            before = best.get(row["document_id"], (THRESHOLD,))[0]
            if similarity > before:
                best[row["document_id"]] = (similarity, paragraph, row)
        connection.run(
            "insert_report_paragraph",
            document_id=document_id,
            line=paragraph.line,
            word_count=len(paragraph.words),
            words=array("I", sorted(paragraph.words)).tobytes(),
        )
        connection.run(
            "insert_report_signatures",
            paragraph_id=connection.last_id(),
            signatures=paragraph.signatures,
        )
    best.pop(document_id, None)
    nearest = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:MOST_SIMILAR]
    report = connection.row("report_age", document_id=document_id)
    made: list[dict[str, Any]] = []
    for other_id, (similarity, paragraph, row) in nearest:
        other = connection.row("report_age", document_id=other_id)
        if report is None or other is None:
            continue
        age = itemgetter("date", "path", "document_id")
        is_younger = age(report) > age(other)
        source, target = (report, other) if is_younger else (other, report)
        flat = " ".join(paragraph.text.split())
        if len(flat) > CONTEXT_CHARACTERS:
            flat = flat[: flat.rfind(" ", 0, CONTEXT_CHARACTERS)].rstrip() + " …"
        made.append(
            {
                "source_document_id": source["document_id"],
                "target_document_id": target["document_id"],
                "target_url": target["path"],
                "target_key": "",
                "kind": "similar",
                "context": flat,
                "start_character": None,
                "end_character": None,
                "confidence": round(similarity, 4),
                "line": paragraph.line if is_younger else row["line"],
            }
        )
    insert_citations(connection, made)


def forget_similar(connection: Connection, document_id: int) -> None:
    """Delete a report's paragraphs with the implicit citations from it and to it."""
    for row in connection.rows("paragraphs_of_report", document_id=document_id):
        connection.run(
            "delete_report_signatures",
            paragraph_id=row["paragraph_id"],
            signatures=signatures(frozenset(array("I", row["words"]))),
        )
    connection.run("delete_report_paragraphs", document_id=document_id)
    connection.run("delete_similar_citations", document_id=document_id)


def word_set(text: str) -> frozenset[str]:
    """The words that are compared: case-folded, pairs of characters of unspaced scripts."""
    pieces = (bigrams(word) if is_unspaced(word) else (word,) for word in words(text.casefold()))
    return frozenset(chain.from_iterable(pieces))


def _paragraphs(new: NewDocument) -> list[_Paragraph]:
    lines = new.text.split("\n")
    paragraphs = []
    for block in new.parsed.blocks:
        if block.kind not in _KINDS:
            continue
        source = "\n".join(lines[block.start_line - 1 : block.end_line])
        unique = word_set(source)
        if len(unique) < FEWEST_WORDS:
            continue
        hashes = frozenset(_digest(word.encode()) for word in unique)
        paragraphs.append(_Paragraph(block.start_line, source, hashes, signatures(hashes)))
    return paragraphs


def signatures(hashes: frozenset[int]) -> tuple[int, ...]:
    """One 32-bit number a band, equal for most sets that are alike."""
    import numpy as np

    factors, offsets = _permutations()
    values = np.fromiter(sorted(hashes), dtype=np.uint64)
    # Multiply-shift hashing; uint64 wraps around as it should.
    lowest = (((factors * values + offsets) >> np.uint64(32)).min(axis=1)).astype("<u4")
    bands = lowest.reshape(BANDS, ROWS)
    return tuple(_digest(bytes([number]) + band.tobytes()) for number, band in enumerate(bands))


@cache
def _permutations() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The factors and offsets of the hash functions, the same on every machine."""
    import numpy as np

    stream = hashlib.shake_128(b"kb.similar").digest(BANDS * ROWS * 16)
    numbers = np.frombuffer(stream, dtype="<u8").reshape(2, BANDS * ROWS, 1).astype(np.uint64)
    return numbers[0] | np.uint64(1), numbers[1]


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "little")
