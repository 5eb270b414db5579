"""The embedding models of the file, and the vectors that they made of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kb.store.connection import Connection, Row
from kb.store.vectors import rebuild_all_vectors


def current_model(connection: Connection) -> Row | None:
    """The model whose vectors are searched; None while the file has no vector."""
    return connection.once("current model", lambda: connection.row("current_model"))


def find_model_id(connection: Connection, name: str, sha256: str, width: int) -> int | None:
    model_id: int | None = connection.value("find_model", name=name, sha256=sha256, width=width)
    return model_id


def insert_model(
    connection: Connection, name: str, sha256: str, width: int, slope: float, intercept: float
) -> int:
    """Note a model with its newest calibration. Returns its row id."""
    key = {"name": name, "sha256": sha256, "width": width}
    if connection.value("find_model", **key) is None:
        # A deleted model's number is given again: its vectors must not become the new model's.
        connection.run("forget_vectors_without_model")
        connection.run("delete_vectors_without_model")
    connection.run("insert_model", **key, slope=slope, intercept=intercept)
    return connection.count("find_model", **key)


def set_current_model(connection: Connection, model_id: int) -> None:
    """Make a model the current one, if there is none."""
    connection.run("set_current_model", model_id=model_id)


def set_build_of_model(
    connection: Connection, model_id: int, name: str, sha256: str, width: int
) -> None:
    """Note that a model's vectors are of another build, unless that one has a row."""
    connection.run("set_build_of_model", name=name, sha256=sha256, width=width, model_id=model_id)


def switch_model(connection: Connection, model_id: int) -> None:
    """Make another model's vectors the ones in use, in one transaction."""
    use_vectors_of_model(connection, model_id)
    connection.run("unset_current_models")
    set_current_model(connection, model_id)
    connection.run("delete_other_models")
    delete_unused_vectors(connection)
    rebuild_all_vectors(connection)


def vectors_of(connection: Connection, model_id: int, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """The vector ids of texts that the model has already embedded, by hash."""
    written = [value.hex() for value in hashes]
    rows = connection.tuples("vectors_by_hash", model_id=model_id, text_hashes=written)
    return {bytes.fromhex(value): vector_id for value, vector_id in rows}


def insert_vectors(
    connection: Connection, model_id: int, vectors: Iterable[tuple[bytes, bytes]]
) -> None:
    """Store embeddings: pairs of a text's hash and its vector."""
    rows = ({"model_id": model_id, "text_hash": key, "vector": value} for key, value in vectors)
    connection.run_many("insert_vector", rows)


def set_chunk_vectors(connection: Connection, chosen: Iterable[tuple[int, bytes, int]]) -> None:
    """Give chunks (id, text hash, vector id) their vectors, unless the text has changed since."""
    names = ("chunk_id", "text_hash", "vector_id")
    connection.run_many(
        "set_chunk_vector", (dict(zip(names, triple, strict=True)) for triple in chosen)
    )


def use_vectors_of_model(connection: Connection, model_id: int) -> None:
    """Give every chunk the model's vector of its text, or none."""
    connection.run("use_vectors_of_model", model_id=model_id)


def delete_unused_vectors(connection: Connection) -> None:
    """Delete the vectors of the current model that no chunk uses any more."""
    connection.run("delete_unused_vectors")


def vectors_of_document(connection: Connection, document_id: int) -> list[int]:
    return connection.column("vectors_of_document", document_id=document_id)


def delete_if_unused(connection: Connection, vector_ids: Sequence[int]) -> None:
    connection.run("delete_unused_of_vectors", vector_ids=[*vector_ids])


def has_vectors_without_model(connection: Connection) -> bool:
    """Whether somebody deleted the row of the model that made the file's vectors."""
    return bool(connection.value("has_vectors_without_model"))
