"""The class `KnowledgeBase`, whose verbs are in one module per topic."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from kb.library.workspace import Workspace

# Each topic's module and class, and its verbs.
TOPICS = {
    "access_tokens.AccessTokens": "add_token list_tokens revoke_tokens forget_tokens "
    "asks_for_tokens find_holder valid_hashes",
    "archives.Archives": "search_archives sync_archives",
    "care.Care": "status health tool_calls copy split merge cut pack",
    "citations.Citing": "cite graph graph_picture broken_links",
    "code.Code": "grep",
    "collecting.Collecting": "add add_for_search sync move remove embed passages_waiting reembed "
    "sources_to_confirm confirm_sources",
    "context.Packing": "context",
    "documents.Documents": "list_collections count_waiting project_roots list_documents recent "
    "get outline section",
    "external.External": "activate search_external",
    "memory.Memory": "record recall has_discoveries forget search_index add_document create_index",
    "related.Relating": "related",
    "searching.Searching": "search search_for_people search_batch",
}


class _Verb:
    """A method that is loaded when first used: making all the result types takes 45 ms."""

    def __init__(self, topic: str) -> None:
        self._module, self._class = topic.split(".")

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, base: object, owner: type) -> Any:
        topic = getattr(import_module(f"kb.library.{self._module}"), self._class)
        setattr(_Verbs, self._name, vars(topic)[self._name])
        return getattr(owner if base is None else base, self._name)


if TYPE_CHECKING:
    from kb.library.access_tokens import AccessTokens
    from kb.library.archives import Archives
    from kb.library.care import Care
    from kb.library.citations import Citing
    from kb.library.code import Code
    from kb.library.collecting import Collecting
    from kb.library.context import Packing
    from kb.library.documents import Documents
    from kb.library.external import External
    from kb.library.memory import Memory
    from kb.library.related import Relating
    from kb.library.searching import Searching

    class _Verbs(
        AccessTokens,
        Archives,
        Care,
        Citing,
        Code,
        Collecting,
        Documents,
        External,
        Memory,
        Packing,
        Relating,
        Searching,
    ):
        pass
else:
    _Verbs = type(
        "_Verbs",
        (Workspace,),
        {name: _Verb(topic) for topic, names in TOPICS.items() for name in names.split()},
    )


class KnowledgeBase(_Verbs):
    """A knowledge base: documents with their outlines, keywords, vectors and citations.

    `kb.open` makes one; it is a context manager and may be used by several threads at once. Where
    several files are read as one, the first is written. A document is named by its id within
    `collection`, or without it as on the command line: by its id in any collection, by
    `COLLECTION/id`, by its path on disk or by the end of its id.

    Args that several verbs have:
        embed: give the passages vectors; without them they are found by words alone.
        limit: the most rows.
        filters: which documents may be found, and how rows are shown: see `FilterOptions`.
        progress: called with a stage ("documents", "embedding"), what is done and what there is.
        workers: the address of a Dask scheduler whose workers run the model instead.
        tell: hears messages about the workers.

    Errors are those of `kb.errors`. A name that does not exist raises `CollectionNotFound`,
    `DocumentNotFound`, `IndexNotFound` and so on, with the nearest names; an ambiguous one
    `UsageError`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the `.db` alone is then complete."""
        self.stop()
        if self.shards is not None:
            self.shards.close()
        self.file.close()
