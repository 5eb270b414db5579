"""A file that is kept up to date does not grow by it."""

import random
from collections.abc import Iterable
from pathlib import Path

from support import Filler

from kb.store.database import Database
from kb.store.tidying import FREE_SHARE, MOST_ROOM, MOST_WASTE, STEP, surplus_pages
from kb.tools.session import Session

WORDS = [f"{first}{second}" for first in ("wind", "rain", "mast") for second in range(400)]


def page(dice: random.Random) -> str:
    return "# Page\n\n" + "\n\n".join(" ".join(dice.choices(WORDS, k=60)) for _ in range(30))


def segments(kb: Session) -> list[int]:
    with kb.database.read() as connection:
        rows = connection.apsw.execute(
            "SELECT count(*) FROM keyword_index_idx GROUP BY segid ORDER BY 1"
        ).fetchall()
    return [pages for (pages,) in rows]


def test_edits_leave_no_waste_in_the_index(fill: Filler) -> None:
    dice = random.Random(1)
    kb = fill({f"{number}.md": page(dice) for number in range(30)}, embed=False)
    first = sum(segments(kb))
    for _ in range(12):
        some = dice.sample(range(30), 4)
        fill({f"{number}.md": page(dice) for number in some}, embed=False)
        *newer, largest = segments(kb)
        assert sum(newer) <= MOST_WASTE * largest
    assert sum(segments(kb)) <= 1.1 * first


def test_edits_leave_no_room_inside_of_pages(fill: Filler) -> None:
    dice = random.Random(3)

    def some_pages(numbers: Iterable[int]) -> dict[str, str | bytes]:
        return {f"{number}.md": page(dice)[: dice.randrange(3_000, 9_000)] for number in numbers}

    kb = fill(some_pages(range(40)), embed=False)
    for _ in range(12):
        fill(some_pages(dice.sample(range(40), 6)), embed=False)
        with kb.database.read() as connection:
            size, length = connection.size()
            assert surplus_pages(connection) * length <= MOST_ROOM * size


def test_pages_without_use_are_given_back(fill: Filler, folder: Path) -> None:
    dice = random.Random(1)
    documents: dict[str, str | bytes] = {f"{number}.md": page(dice) for number in range(30)}
    kb = fill(documents, embed=False)
    before = Path(kb.database.path).stat().st_size
    for number in range(15):
        (folder / f"{number}.md").unlink()
    fill({}, embed=False)
    with kb.database.read() as connection:
        free = connection.apsw.pragma("freelist_count")
        pages = connection.apsw.pragma("page_count")
    assert free <= FREE_SHARE * pages + STEP
    assert Path(kb.database.path).stat().st_size < 0.7 * before


def test_a_document_that_is_replaced_by_calls_leaves_no_waste(tmp_path: Path, fill: Filler) -> None:
    from support import call

    dice = random.Random(2)
    kb = fill({}, embed=False)
    sizes = []
    for _ in range(25):
        call(kb, "search_add_document", doc_id="note", content=page(dice))
        sizes.append(sum(segments(kb)))
    assert max(sizes[5:]) <= 2 * sizes[0]


def test_a_file_of_an_older_version_gives_its_room_back(tmp_path: Path) -> None:
    from test_migrations import old_file

    path = old_file(1, tmp_path)
    with Database(path) as database, database.read() as connection:
        assert connection.apsw.pragma("auto_vacuum") == 2
        assert connection.apsw.pragma("freelist_count") == 0
