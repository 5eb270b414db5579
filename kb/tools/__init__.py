"""The tools, one module a family. Importing this package registers them all."""

from kb.tools import documents, index

__all__ = ["documents", "index"]
