"""The tools, one module a family. Importing this package registers them all."""

from kb.tools import documents

__all__ = ["documents"]
