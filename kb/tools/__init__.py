"""The tools, one module a family. Importing this package registers them all."""

from kb.tools import documents, index  # isort: skip
from kb.tools import archive, external, context  # isort: skip

__all__ = ["archive", "context", "documents", "external", "index"]
