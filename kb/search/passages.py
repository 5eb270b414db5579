"""Run searches and shape what they found into the rows that clients and people see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kb.errors import EmbeddingError
from kb.model_in_use import ModelInUse, calibration_of, has_english_model
from kb.models.embedder import BUNDLED_CALIBRATION, Calibration
from kb.models.rerank import CANDIDATES, blend
from kb.search.files import SearchedFile, Together
from kb.search.hybrid import DEPTH, FARTHEST, Collected, Hit, collect, load_rows, ranked
from kb.search.operators import Filters, enforced
from kb.search.paths import within_paths
from kb.search.query import Query, parse_query
from kb.search.ranking import readable_share, shown
from kb.search.typos import correct, known_words
from kb.store.addresses import address_fields
from kb.store.chunks import count_chunks, count_waiting, paths_of_chunks
from kb.store.connection import Connection, Row
from kb.store.ids import WHOLE_FILE, ChunkRange
from kb.store.names import Names
from kb.store.places import place_fields
from kb.store.vectors import nearest_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Asked = tuple[str, Sequence[str]]  # a query and the collections to look in; none: all

FEWEST = 30  # candidates of each list of a file, however many files there are
WORDS_ALONE = "There are no embeddings yet: judged by words alone until `kb sync` has made some."


@dataclass(frozen=True, slots=True)
class Found:
    """What several searches found: rows and the hits behind them, and what to tell the reader.

    Attributes:
        files: where each row comes from.
    """

    rows: list[list[Row]]
    hits: list[list[Hit]]
    notice: str
    files: list[list[SearchedFile]] = field(default_factory=list)


def search_passages(
    model: ModelInUse,
    names: Names,
    asked: Sequence[Asked],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool,
    *,
    distances: bool = True,
    paths: Sequence[str] = (),
) -> Found:
    """As `search_files`, in one file."""
    only = SearchedFile(model, names)
    return search_files(
        [only], asked, limit, max_distance, hybrid, rerank, distances=distances, paths=paths
    )


def search_files(
    files: Sequence[SearchedFile],
    asked: Sequence[Asked],
    limit: int,
    max_distance: float,
    hybrid: bool,
    rerank: bool,
    *,
    distances: bool = True,
    paths: Sequence[str] = (),
) -> Found:
    """The best passages of some files for each query and the collections to look in ([]: all).

    Args:
        distances: False where nobody sees them: what is asked exactly then needs no model.
        paths: globs of which one has to fit a document's id, or its id behind its collection's.

    Raises:
        CollectionNotFound: a name that no file has.
        EmbeddingError: there are no vectors to be had, and `hybrid` is off.
        ModelMismatchError: the first file's vectors come from another model than the one asked for.
    """
    together = Together(files)
    parsed = [parse_query(text, tags=True) for text, _ in asked]
    with together.read():
        places = _places(together, asked)  # a wrong name is told before the model is loaded
        corrected = _corrected(together, parsed)
        by_words_alone = not (distances or rerank or max_distance < FARTHEST)
        by_words = [
            hybrid
            and (
                query.asks_for_nothing
                or (
                    by_words_alone
                    and query.is_exact
                    and not _loosens(together, corrected, places, number, names)
                )
            )
            for number, (query, (_, names)) in enumerate(zip(parsed, asked, strict=True))
        ]
    vectors, problems = _vectors(together, corrected, by_words, hybrid)
    said = [query.notice for query in parsed]
    said += [text for file in together.files for _, text in corrected[file]]
    found = Found([], [], "")
    texts: list[list[str]] = []
    lacks_vectors = False
    with together.read():
        for number, (_, collections) in enumerate(asked):
            searched = [file for file in together.files if places[file][number]]
            queries = {file: corrected[file][number][0] for file in searched}
            own = {file: vectors[file][number] for file in searched}
            depth = _depth(len(searched), limit)
            allowed, loosened = _filters(together, queries, collections, paths)
            gathered = _gathered(together, allowed, own, collections, hybrid, depth)
            hits = ranked(
                list(gathered.values()), max(limit, CANDIDATES) if rerank else limit, max_distance
            )
            origins = [[*gathered][number] for number, _ in hits]
            listed = _rows(together, origins, [hit for _, hit in hits], collections)
            found.files.append([file for file, _, _ in listed])
            found.hits.append([hit for _, hit, _ in listed])
            found.rows.append([row for _, _, row in listed])
            texts.append(_texts(together, listed[:CANDIDATES]) if rerank else [])
            said.append(loosened)
            lacks_vectors |= (
                bool(hits)
                and not by_words[number]
                and any(vector is None for vector in own.values())
            )
        by_meaning = [one for one, exact in zip(asked, by_words, strict=True) if not exact]
        waiting = "" if lacks_vectors else _some_wait(together, by_meaning)
    said += problems
    if any(found.rows) and not problems:
        said.append(WORDS_ALONE if lacks_vectors else waiting)
    found = replace(found, notice=" ".join(filter(None, dict.fromkeys([*said, *together.lost]))))
    if not rerank:
        return found
    first = together.files[0]
    return _reranked(first.model, [query for query, _ in corrected[first]], found, texts, limit)


def _places(together: Together, asked: Sequence[Asked]) -> dict[SearchedFile, list[bool]]:
    """For each file whether it holds a collection that each query asks for.

    Raises:
        CollectionNotFound: a name that no file has.
    """
    wanted = list(dict.fromkeys(name for _, names in asked for name in names))

    def known(file: SearchedFile, connection: Connection) -> set[str]:
        return {name for name in wanted if file.names.find(connection, name) is not None}

    known_to = together.each(known)
    for name in wanted:
        if not any(name in names for names in known_to.values()):
            names = together.each(lambda file, connection: file.names.known(connection))
            others = [one for own in names.values() for one in own]
            together.each(
                lambda file, connection: file.names.collection(connection, name, others=others)  # noqa: B023
            )
    return {
        file: [not names or not known.isdisjoint(names) for _, names in asked]
        for file, known in known_to.items()
    }


def _corrected(
    together: Together, queries: Sequence[Query]
) -> dict[SearchedFile, list[tuple[Query, str]]]:
    """Each query as it is asked of each file, with likely words for what no file knows."""
    known: list[set[str]] = [set() for _ in queries]
    if len(together.files) > 1:
        words = together.each(
            lambda _, connection: [known_words(connection, query) for query in queries]
        )
        known = [set().union(*every) for every in zip(*words.values(), strict=True)]
    return together.each(
        lambda _, connection: [
            correct(connection, query, elsewhere=own)
            for query, own in zip(queries, known, strict=True)
        ]
    )


def _vectors(
    together: Together,
    corrected: Mapping[SearchedFile, Sequence[tuple[Query, str]]],
    by_words: Sequence[bool],
    hybrid: bool,
) -> tuple[dict[SearchedFile, list[NDArray[np.float32] | None]], list[str]]:
    """The vectors of the queries by each file's model, and what kept some from having any."""
    vectors: dict[SearchedFile, list[NDArray[np.float32] | None]] = {}
    problems: list[str] = []
    for file in [*together.files]:
        try:
            queries = [query for query, _ in corrected[file]]
            vectors[file], problem = _vectors_of(file.model, queries, by_words)
            if not hybrid and any(vector is None for vector in vectors[file]):
                raise EmbeddingError(
                    problem or "the file has no embeddings yet: run `kb sync`, or set hybridSearch"
                )
        except EmbeddingError as error:
            together.leave_out(file, error)
        else:
            problems.append(problem)
    return vectors, list(filter(None, problems))


def _loosens(
    together: Together,
    corrected: Mapping[SearchedFile, Sequence[tuple[Query, str]]],
    places: Mapping[SearchedFile, Sequence[bool]],
    number: int,
    collections: Sequence[str],
) -> bool:
    """Whether nothing holds what a query asks for, so that it is searched in another way."""
    queries = {file: corrected[file][number][0] for file in together.files if places[file][number]}
    return bool(_filters(together, queries, collections)[1])


def _filters(
    together: Together,
    queries: Mapping[SearchedFile, Query],
    collections: Sequence[str],
    paths: Sequence[str] = (),
) -> tuple[dict[SearchedFile, tuple[Query, Filters]], str]:
    """The queries with what their operators let pass of each file, and what to tell the reader.

    What `enforced` does where nothing is found, such as searching without the quotes, it does
    only where no file holds anything.
    """

    def enforce(file: SearchedFile, connection: Connection) -> tuple[Query, Filters, str] | None:
        if file not in queries:
            return None
        ranges, called = file.names.ranges(connection, collections, some=True)
        query, filters, notice = enforced(connection, queries[file], ranges)
        if paths:
            filters, unmatched = within_paths(connection, filters, ranges, called, paths)
            notice = f"{notice} {unmatched}".strip()
        return query, filters, notice

    found = {file: one for file, one in together.each(enforce).items() if one is not None}
    notices = [notice for _, _, notice in found.values()]
    if all(notices):
        return {file: one[:2] for file, one in found.items()}, next(iter(notices), "")
    return {
        file: (queries[file], (set(), None)) if notice else (query, filters)
        for file, (query, filters, notice) in found.items()
    }, ""


def _gathered(
    together: Together,
    allowed: Mapping[SearchedFile, tuple[Query, Filters]],
    vectors: Mapping[SearchedFile, NDArray[np.float32] | None],
    collections: Sequence[str],
    hybrid: bool,
    depth: int,
) -> dict[SearchedFile, Collected]:
    """What the files that are asked know of a query."""

    def gather_from(file: SearchedFile, connection: Connection) -> Collected | None:
        if file not in allowed:
            return None
        query, filters = allowed[file]
        ranges, _ = file.names.ranges(connection, collections, some=True)
        return collect(
            connection,
            query,
            vectors[file],
            ranges=ranges,
            use_keywords=hybrid,
            calibration=calibration_of(connection),
            english_model=has_english_model(connection),
            filters=filters,
            depth=depth,
        )

    gathered = together.each(gather_from)
    return {file: one for file, one in gathered.items() if one is not None}


def _depth(files: int, limit: int) -> int:
    """Passages of each file's lists that become candidates.

    Of several files each need give fewer: twice its share, but all rows that are asked for.
    """
    return DEPTH if files < 2 else max(min(limit, DEPTH), 2 * DEPTH // files, FEWEST)


def _rows(
    together: Together,
    origins: Sequence[SearchedFile],
    hits: Sequence[Hit],
    collections: Sequence[str],
) -> list[tuple[SearchedFile, Hit, Row]]:
    """Each hit with its file and its row, in their order."""

    def own_rows(file: SearchedFile, connection: Connection) -> Iterator[Row]:
        own = [hit for origin, hit in zip(origins, hits, strict=True) if origin is file]
        _, called = file.names.ranges(connection, collections, some=True)
        return iter(passage_rows(connection, own, called))

    rows = together.each(own_rows)
    return [
        (file, hit, next(rows[file]))
        for file, hit in zip(origins, hits, strict=True)
        if file in rows
    ]


def _texts(together: Together, listed: Sequence[tuple[SearchedFile, Hit, Row]]) -> list[str]:
    """The texts of some hits as the model embedded them."""

    def own_texts(file: SearchedFile, connection: Connection) -> Iterator[str]:
        own = [hit for origin, hit, _ in listed if origin is file]
        return iter(_embedded_texts(connection, own))

    texts = together.each(own_texts)
    return [next(texts[file]) if file in texts else "" for file, _, _ in listed]


def _vectors_of(
    model: ModelInUse, queries: Sequence[Query], by_words: Sequence[bool]
) -> tuple[list[NDArray[np.float32] | None], str]:
    """The vector of each query that is not judged by its words alone, and what went wrong."""
    if all(by_words):
        return [None] * len(queries), ""
    texts = [
        query.words_to_embed for query, alone in zip(queries, by_words, strict=True) if not alone
    ]
    vectors, problem = model.try_embed_queries(texts)
    left = iter(vectors)
    return [None if alone else next(left) for alone in by_words], problem


def _some_wait(together: Together, asked: Sequence[Asked]) -> str:
    """What to say while some of the passages that were searched have no vector yet."""

    def ranges(file: SearchedFile, connection: Connection) -> set[ChunkRange]:
        wanted = (file.names.ranges(connection, names, some=True)[0] for _, names in asked)
        found = {place for places in wanted for place in places}
        return {WHOLE_FILE} if WHOLE_FILE in found else found

    def count(
        counted: Callable[[Connection, ChunkRange], int],
    ) -> int:
        return sum(
            together.each(
                lambda file, connection: sum(
                    counted(connection, place) for place in ranges(file, connection)
                )
            ).values()
        )

    waiting = count(count_waiting)
    if not waiting:
        return ""
    total = count(count_chunks)
    return (
        f"{total - waiting} of {total} passages have vectors yet: the others are found by words "
        "alone until `kb sync` has made theirs."
    )


def _reranked(
    model: ModelInUse,
    queries: Sequence[Query],
    found: Found,
    texts: Sequence[Sequence[str]],
    limit: int,
) -> Found:
    """The best rows of each query in a finer order, and what kept them from it if anything.

    Reranking says which rows are the best, the evidence how good the best are: the first row gets
    the greatest of their scores, and so on.

    Args:
        texts: of each query the texts of its best hits.
    """
    problem = ""
    orders = [list(range(len(hits))) for hits in found.hits]
    with model.database.read() as connection:
        english_model = has_english_model(connection)
    try:
        reranker = model.reranker()
        if reranker is None:
            problem = "The model gives no token vectors: rerank has no effect."
        else:
            for order, query, hits, passages in zip(
                orders, queries, found.hits, texts, strict=True
            ):
                scores = reranker.scores(query.words_to_embed, passages) if passages else []
                weight = reranker.weight * (readable_share(query.text) if english_model else 1.0)
                old = [hit.score for hit in hits[: len(passages)]]
                order[: len(passages)] = blend(old, scores, weight)
    except EmbeddingError as error:
        problem = f"Not reranked: {error.message}."
    reranked = Found([], [], found.notice or problem)
    for order, rows, hits, files in zip(orders, found.rows, found.hits, found.files, strict=True):
        scores_in_order = [hit.score for hit in hits]  # they fall
        places = list(zip(order, scores_in_order, strict=True))[:limit]
        reranked.hits.append([replace(hits[i], score=score) for i, score in places])
        reranked.rows.append([{**rows[i], "relevanceScore": score} for i, score in places])
        reranked.files.append([files[i] for i, _ in places])
    return reranked


def _embedded_texts(connection: Connection, hits: Sequence[Hit]) -> list[str]:
    """The texts of some hits as the model embedded them."""
    from kb.formats.chunk import (
        embedding_text,
    )  # here: it brings the parser, which no server start needs

    return [
        embedding_text(row["title"], row["heading_path"], row["content"])
        for row in load_rows(connection, [hit.chunk_id for hit in hits])
    ]


def nearest_documents(
    connection: Connection,
    vector: NDArray[np.float32],
    place: ChunkRange,
    limit: int,
    *,
    without: Sequence[int],
    calibration: Calibration = BUNDLED_CALIBRATION,
) -> list[Hit]:
    """The documents of one range that come nearest, each by its nearest chunk, nearest first."""
    depth = max(DEPTH, limit * 10)
    while True:
        nearest = nearest_chunks(connection, vector, [place], depth, without=without)
        document_of = paths_of_chunks(connection, (chunk_id for chunk_id, _ in nearest))
        best: dict[str, Hit] = {}
        for chunk_id, distance in nearest:
            score = shown(calibration.score(distance))
            best.setdefault(document_of[chunk_id], Hit(chunk_id, score, distance))
        # A long document may hold all of the nearest chunks: then look further.
        if len(best) >= limit or len(nearest) < depth:
            return list(best.values())[:limit]
        depth *= 4


def passage_rows(
    connection: Connection, hits: Sequence[Hit], called: dict[int, dict[str, str]]
) -> list[Row]:
    """The rows of some hits, in their order; `called` says how each collection is called."""
    rows: list[Any] = []
    by_id = {hit.chunk_id: hit for hit in hits}
    for row in load_rows(connection, list(by_id)):
        hit = by_id[row["chunk_id"]]
        result: Any = {
            **called[row["collection_id"]],
            "documentId": row["document"],
            "documentTitle": row["title"],
            **address_fields(row, row["document"]),
            "content": row["content"],
            "chunkIndex": row["position"],
            "totalChunks": row["chunk_count"],
            "startLine": row["start_line"],
            "endLine": row["end_line"],
            **place_fields(row),
            "relevanceScore": hit.score,
        }
        if row["heading"]:
            result["sectionHeading"] = row["heading"]
        if hit.distance is not None:
            result["distance"] = round(hit.distance, 4)
        rows.append(result)
    return rows
