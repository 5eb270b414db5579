"""Run searches and shape what they found into the rows that clients and people see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kb.model_in_use import MadeBy, ModelInUse, made_by
from kb.models.rerank import CANDIDATES
from kb.search.asked import Asked, FileQuery, corrected_for, filters_of, loosens, places_of
from kb.search.candidate_rows import Candidates, promising_together, read_candidates
from kb.search.files import SearchedFile, Together
from kb.search.hybrid import FARTHEST, Collected, Hit, examine, ranked
from kb.search.proposed import DEPTH, Proposed, best_together, probable_together, propose
from kb.search.query import Query, parse_query
from kb.search.query_vectors import WORDS_ALONE, some_wait, vectors_for
from kb.search.reranking import finer_orders, texts_of
from kb.search.rows import passage_rows
from kb.store.connection import Connection, Row
from kb.store.embeddings import current_model
from kb.store.ids import ChunkRange
from kb.store.names import Names
from kb.store.vectors import nearest_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FEWEST = 30  # candidates of each list of a file, however many files there are


class Found(NamedTuple):
    """What several searches found: rows and the hits behind them, and what to tell the reader.

    Attributes:
        files: where each row comes from.
        queries: each as it was asked of each file, with likely words for what no file knows.
    """

    rows: list[list[Row]]
    hits: list[list[Hit]]
    notice: str
    files: list[list[SearchedFile]]
    queries: dict[SearchedFile, list[Query]]


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
) -> Found:
    """As `search_files`, in one file."""
    only = SearchedFile(model, names)
    return search_files([only], asked, limit, max_distance, hybrid, rerank, distances=distances)


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
        places = places_of(together, asked)  # a wrong name is told before the model is loaded
        corrected = corrected_for(together, parsed)
        by_words_alone = not (distances or rerank or max_distance < FARTHEST)
        models = together.each(lambda _, connection: current_model(connection))
        by_words = [
            hybrid
            and (
                query.asks_for_nothing
                or (
                    by_words_alone
                    and query.is_exact
                    and not loosens(together, corrected, places, number, names)
                )
            )
            for number, (query, (_, names)) in enumerate(zip(parsed, asked, strict=True))
        ]
    vectors, problems = vectors_for(together, corrected, models, by_words, hybrid)
    said = [query.notice for query in parsed]
    said += [text for file in together.files for _, text in corrected[file]]
    found = Found([], [], "", [], {})
    for file in together.files:
        found.queries[file] = [query for query, _ in corrected[file]]
    texts: list[list[str]] = []
    lacks_vectors = False
    by_meaning: dict[SearchedFile, set[ChunkRange]] = {}
    with together.read():
        made = together.each(lambda _, connection: made_by(current_model(connection)))
        for number, (_, collections) in enumerate(asked):
            searched = [file for file in together.files if places[file][number]]
            queries = {file: corrected[file][number][0] for file in searched}
            own = {file: vectors[file][number] for file in searched}
            looked, loosened = filters_of(together, queries, collections, paths)
            gathered = gather(together, looked, made, own, hybrid, limit)
            if not by_words[number]:
                for file, one in looked.items():
                    by_meaning.setdefault(file, set()).update(one.ranges)
            hits = ranked(
                list(gathered.values()), max(limit, CANDIDATES) if rerank else limit, max_distance
            )
            origins = [[*gathered][number] for number, _ in hits]
            listed = _rows(together, looked, origins, [hit for _, hit in hits])
            found.files.append([file for file, _, _ in listed])
            found.hits.append([hit for _, hit, _ in listed])
            found.rows.append([row for _, _, row in listed])
            texts.append(texts_of(together, listed[:CANDIDATES]) if rerank else [])
            said.append(loosened)
            lacks_vectors |= (
                bool(hits)
                and not by_words[number]
                and any(vector is None for vector in own.values())
            )
        waiting = "" if lacks_vectors else some_wait(together, by_meaning)
    said += problems
    if any(found.rows) and not problems:
        said.append(WORDS_ALONE if lacks_vectors else waiting)
    found = found._replace(notice=" ".join(filter(None, dict.fromkeys([*said, *together.lost]))))
    if not rerank:
        return found
    first = together.files[0]
    orders, problem = finer_orders(first.model, found.queries[first], found.hits, texts)
    notice = " ".join(filter(None, (found.notice, problem)))
    return _reordered(found._replace(notice=notice), orders, limit)


def gather(
    together: Together,
    looked: Mapping[SearchedFile, FileQuery],
    made: Mapping[SearchedFile, MadeBy],
    vectors: Mapping[SearchedFile, NDArray[np.float32] | None],
    hybrid: bool,
    limit: int,
) -> dict[SearchedFile, Collected]:
    """What the files that are asked know of a query; inside of `together.read`."""
    depth = DEPTH if hybrid else max(limit, DEPTH)
    share = max(min(limit, depth), 2 * depth // len(looked), FEWEST) if len(looked) > 1 else 0

    def proposed_by(file: SearchedFile, connection: Connection) -> Proposed | None:
        if (one := looked.get(file)) is None:
            return None
        return propose(
            connection,
            one.query,
            vectors[file],
            one.ranges,
            depth,
            use_keywords=hybrid,
            calibration=made[file].calibration,
            filters=one.filters,
            share=share,
        )

    found = together.each_at_once(proposed_by)
    proposed = {file: one for file, one in found.items() if one is not None}
    if share:
        proposed = _nearest_of_all(together, proposed, made, vectors, depth)

    def read(file: SearchedFile, connection: Connection) -> Candidates | None:
        if (one := proposed.get(file)) is None:
            return None
        query, ranges = looked[file].query, looked[file].ranges
        return read_candidates(connection, query, vectors[file], one, ranges)

    candidates = {file: one for file, one in together.each(read).items() if one is not None}
    promising = dict(zip(candidates, promising_together([*candidates.values()]), strict=True))

    def examined(file: SearchedFile, connection: Connection) -> Collected | None:
        if (one := candidates.get(file)) is None:
            return None
        return examine(connection, looked[file].query, one, promising[file], made[file])

    gathered = together.each_at_once(examined)
    return {file: one for file, one in gathered.items() if one is not None}


def _nearest_of_all(
    together: Together,
    proposed: Mapping[SearchedFile, Proposed],
    made: Mapping[SearchedFile, MadeBy],
    vectors: Mapping[SearchedFile, NDArray[np.float32] | None],
    depth: int,
) -> dict[SearchedFile, Proposed]:
    """What several files propose with their nearest passages, the best `depth` of all in each list.

    The distances are asked for one file after the other: those of all files are no more than those
    of one.
    """
    chosen = dict(
        zip(
            proposed,
            probable_together([*proposed.values()], [made[file].model for file in proposed], depth),
            strict=True,
        )
    )

    def measured(file: SearchedFile, connection: Connection) -> Proposed | None:
        if (one := proposed.get(file)) is None:
            return None
        vector = vectors[file]
        if vector is None or not chosen[file]:
            return one
        return one._replace(nearest=nearest_of(connection, vector, chosen[file], depth))

    found = {file: one for file, one in together.each(measured).items() if one is not None}
    return dict(zip(found, best_together([*found.values()], depth), strict=True))


def _rows(
    together: Together,
    looked: Mapping[SearchedFile, FileQuery],
    origins: Sequence[SearchedFile],
    hits: Sequence[Hit],
) -> list[tuple[SearchedFile, Hit, Row]]:
    """Each hit with its file and its row, in their order."""

    def own_rows(file: SearchedFile, connection: Connection) -> Iterator[Row]:
        own = [hit for origin, hit in zip(origins, hits, strict=True) if origin is file]
        return iter(passage_rows(connection, own, looked[file].called) if own else ())

    rows = together.each(own_rows)
    return [
        (file, hit, next(rows[file]))
        for file, hit in zip(origins, hits, strict=True)
        if file in rows
    ]


def _reordered(found: Found, orders: Sequence[Sequence[int]], limit: int) -> Found:
    """The rows of each query in a finer order.

    Reranking says which rows are the best, the evidence how good the best are: the first row gets
    the greatest of their scores, and so on.
    """
    reordered = found._replace(rows=[], hits=[], files=[])
    for order, rows, hits, files in zip(orders, found.rows, found.hits, found.files, strict=True):
        scores_in_order = [hit.score for hit in hits]  # they fall
        places = list(zip(order, scores_in_order, strict=True))[:limit]
        reordered.hits.append([hits[i]._replace(score=score) for i, score in places])
        reordered.rows.append([{**rows[i], "relevanceScore": score} for i, score in places])
        reordered.files.append([files[i] for i, _ in places])
    return reordered
