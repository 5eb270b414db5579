"""What the library answers: frozen dataclasses whose fields are the contract's in snake case.

`to_dict` gives the object that is sent: its keys in the case of the tool's family, without None.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kb.results.archives import *  # noqa: F403 - all types are the library's
    from kb.results.base import *  # noqa: F403
    from kb.results.care import *  # noqa: F403
    from kb.results.citations import *  # noqa: F403
    from kb.results.code import *  # noqa: F403
    from kb.results.context import *  # noqa: F403
    from kb.results.documents import *  # noqa: F403
    from kb.results.external import *  # noqa: F403
    from kb.results.findings import *  # noqa: F403
    from kb.results.memory import *  # noqa: F403
    from kb.results.search import *  # noqa: F403

# Making a dataclass takes up to a millisecond, so a search makes only those that it needs.
_MODULES = (
    *("base", "search", "documents", "citations", "care", "findings"),
    *("memory", "code", "archives", "external", "context"),
)


def __getattr__(name: str) -> Any:
    """A type of result, or all their names."""
    is_listed = name == "__all__"
    types: dict[str, type] = {}
    for module in map(import_module, (f"kb.results.{module}" for module in _MODULES)):
        if is_listed or not name.startswith("_"):
            types |= {
                key: value
                for key, value in vars(module).items()
                if isinstance(value, type) and value.__module__ == module.__name__
            }
        if name in types:
            return types[name]
    if is_listed:
        return sorted(types)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
