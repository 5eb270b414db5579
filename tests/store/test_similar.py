"""Implicit citations between research reports."""

import hashlib
import random
from pathlib import Path

from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.similar import BANDS, THRESHOLD, signatures, word_set
from kb.tools.session import Session

TEXT = (
    "Keep a part of the examples aside, never show them during training, and judge the finished "
    "model by them alone; everything else measures memory and not understanding."
)


def similar(kb: Session) -> list[tuple[str, str, float, int]]:
    with kb.database.read() as connection:
        return list(
            connection.apsw.execute(
                "SELECT s.path, t.path, confidence, line FROM citations"
                " JOIN documents s ON s.document_id = source_document_id"
                " JOIN documents t ON t.document_id = target_document_id"
                " WHERE kind = 'similar' ORDER BY 1, 2"
            )
        )


def archive(kb: Session, folder: Path, documents: dict[str, str], kind: str = "archive") -> None:
    for path, text in documents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    sync_collection(kb.database, register(kb.database, str(folder), kind=kind), force=True)


def jaccard(one: str, other: str) -> float:
    a, b = word_set(one), word_set(other)
    return len(a & b) / len(a | b)


def test_the_younger_report_cites_the_older_one(kb: Session, folder: Path) -> None:
    other = TEXT.replace("model", "tree")
    archive(
        kb,
        folder,
        {"2025-01-02/b.md": f"# Two\n\n{TEXT}", "2025-01-01/z.md": f"# One\n\nX.\n\n{other}"},
    )
    expected = round(jaccard(TEXT, other), 4)
    assert similar(kb) == [("2025-01-02/b.md", "2025-01-01/z.md", expected, 3)]


def test_reports_that_differ_more_do_not_cite_each_other(kb: Session, folder: Path) -> None:
    words = TEXT.split()
    half = " ".join([*words[: len(words) // 2], "other", "words", "differ", "enough", "here"])
    assert jaccard(TEXT, half) <= THRESHOLD
    archive(kb, folder, {"a.md": TEXT, "b.md": half, "c.md": "Short text."})
    assert similar(kb) == []


def test_a_report_that_changes_or_goes_takes_its_likeness_with_it(
    kb: Session, folder: Path
) -> None:
    archive(kb, folder, {"a.md": TEXT, "b.md": TEXT, "c.md": TEXT})
    assert len(similar(kb)) == 3
    archive(kb, folder, {"b.md": "Something else by now, which is not alike at all."})
    assert [row[:2] for row in similar(kb)] == [("c.md", "a.md")]
    (folder / "a.md").unlink()
    archive(kb, folder, {})
    assert similar(kb) == []
    with kb.database.read() as connection:
        for table, left in (("report_paragraphs", 1), ("report_signatures", BANDS)):
            assert connection.apsw.execute(f"SELECT count(*) FROM {table}").get == left


def test_only_research_reports_are_compared(kb: Session, folder: Path) -> None:
    page = f"---\nurl: https://example.com/x\n---\n{TEXT}"
    archive(kb, folder, {"a.md": TEXT, "b.md": page})
    assert similar(kb) == []
    (folder / "more").mkdir()
    archive(kb, folder / "more", {"c.md": TEXT}, kind="documents")
    assert similar(kb) == []


def test_nearly_every_alike_pair_is_found_and_few_others_are_compared() -> None:
    chance = random.Random(1)
    vocabulary = [f"word{number}" for number in range(2000)]
    missed = compared = 0
    for _ in range(300):
        one = chance.sample(vocabulary, chance.randint(20, 60))
        kept = one[: int(len(one) * 0.85)] + chance.sample(vocabulary, 1)
        other = chance.sample(vocabulary, len(one))
        sets = [signatures(frozenset(map(hash_of, words))) for words in (one, kept, other)]
        assert jaccard(" ".join(one), " ".join(kept)) > THRESHOLD
        missed += not set(sets[0]) & set(sets[1])
        compared += bool(set(sets[0]) & set(sets[2]))
    assert missed <= 1
    assert compared <= 3


def hash_of(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")
