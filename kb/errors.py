"""The exception tree. Each class carries the code that a client sees.

KbError                      INTERNAL_ERROR
├── UsageError               VALIDATION_ERROR     what was asked makes no sense
│   └── DocumentTooComplex   VALIDATION_ERROR     a text whose parsing does not end in time
├── ConfigurationError       CONFIG_ERROR
├── SourceError              FILE_SYSTEM_ERROR    a file or folder that cannot be read
│   └── ConversionError      FILE_SYSTEM_ERROR    a file whose format cannot be converted
├── FileError                FILE_SYSTEM_ERROR    the knowledge base file itself
│   ├── DamagedFileError     DATABASE_ERROR
│   ├── NewerFileError       DATABASE_ERROR       written by a later kb
│   ├── ReplacedFileError    DATABASE_ERROR       removed or replaced while it was open
│   └── BusyError            DATABASE_ERROR       another process holds the write lock
├── EmbeddingError           EMBEDDING_SERVICE_ERROR
│   ├── ModelMismatchError   EMBEDDING_SERVICE_ERROR
│   └── NoEmbeddings         EMBEDDING_SERVICE_ERROR
├── IndexExists              INDEX_EXISTS
├── UnknownBackend           UNKNOWN_BACKEND
├── PermissionDenied         PERMISSION_DENIED    a path outside the project, or a hidden file
├── FileNotFound             FILE_NOT_FOUND       no such file in the project
├── FileTooLarge             FILE_TOO_LARGE
├── ImportsFailed            FILE_SYSTEM_ERROR    a file whose imports cannot be parsed
├── InvalidPattern           INVALID_PATTERN      a regular expression that cannot be used
├── ProjectNotActivated      PROJECT_NOT_ACTIVATED
├── ExternalDocsNotConfigured  EXTERNAL_DOCS_NOT_CONFIGURED
├── RateLimited              RATE_LIMITED
└── NotFoundError
    ├── IndexNotFound        INDEX_NOT_FOUND
    ├── CollectionNotFound   COLLECTION_NOT_FOUND
    ├── ModuleNotFound       FILE_NOT_FOUND
    ├── ResourceNotFound     DOCUMENT_NOT_FOUND
    ├── DocumentNotFound     DOCUMENT_NOT_FOUND
    ├── DiscoveryNotFound    DOCUMENT_NOT_FOUND
    ├── TokenNotFound        TOKEN_NOT_FOUND
    └── SectionNotFound      SECTION_NOT_FOUND

A message says what failed and what to do next. Extra keyword arguments become extra keys of
the error that a client receives. `server` and `cli` alone turn these into replies and exit codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

__all__ = [
    "BusyError",
    "CollectionNotFound",
    "ConfigurationError",
    "ConversionError",
    "DamagedFileError",
    "DiscoveryNotFound",
    "DocumentNotFound",
    "DocumentTooComplex",
    "EmbeddingError",
    "ExternalDocsNotConfigured",
    "FileError",
    "FileNotFound",
    "FileTooLarge",
    "ImportsFailed",
    "IndexExists",
    "IndexNotFound",
    "InvalidPattern",
    "KbError",
    "ModelMismatchError",
    "ModuleNotFound",
    "NewerFileError",
    "NoEmbeddings",
    "NotFoundError",
    "PermissionDenied",
    "ProjectNotActivated",
    "RateLimited",
    "ReplacedFileError",
    "ResourceNotFound",
    "SectionNotFound",
    "SourceError",
    "TokenNotFound",
    "UnknownBackend",
    "UsageError",
]


class KbError(Exception):
    """Anything kb refuses or fails to do, with a message for people."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self._details = details

    @property
    def details(self) -> dict[str, Any]:
        """Further keys of the error that a client receives."""
        return self._details

    def as_result(self) -> dict[str, Any]:
        """The error as the object a client receives."""
        return {"error": self.message, "code": self.code, **self.details}


class UsageError(KbError):
    """Arguments that make no sense together or are out of bounds.

    Args:
        field: the argument that is wrong, as a tool's caller knows it.
    """

    code = "VALIDATION_ERROR"

    def __init__(self, message: str, *, field: str = "", **details: Any) -> None:
        if field:
            details["details"] = {"fieldErrors": {field: [message]}}
        super().__init__(message, **details)


class DocumentTooComplex(UsageError):
    """A document that takes more time to parse than one of its length may."""


class ConfigurationError(KbError):
    """A configuration file or environment variable that cannot be used."""

    code = "CONFIG_ERROR"


class SourceError(KbError):
    """A source file or folder that cannot be read."""

    code = "FILE_SYSTEM_ERROR"


class ConversionError(SourceError):
    """A file that its converter cannot make a document of."""


class FileError(KbError):
    """The knowledge base file cannot be opened, read or written."""

    code = "FILE_SYSTEM_ERROR"


class DamagedFileError(FileError):
    """The file is no SQLite database, or not one of ours, or is damaged."""

    code = "DATABASE_ERROR"


class NewerFileError(FileError):
    """The file was written by a later version of kb."""

    code = "DATABASE_ERROR"


class ReplacedFileError(FileError):
    """The file was removed, or another one put in its place, while it was open."""

    code = "DATABASE_ERROR"


class BusyError(FileError):
    """Another process kept the write lock longer than we wait."""

    code = "DATABASE_ERROR"


class EmbeddingError(KbError):
    """The embedding model cannot be loaded or run."""

    code = "EMBEDDING_SERVICE_ERROR"


class ModelMismatchError(EmbeddingError):
    """The file's vectors come from another model than the one asked for."""


class IndexExists(KbError):
    """The name of a new index is taken."""

    code = "INDEX_EXISTS"


class UnknownBackend(KbError):
    """There is no such kind of index."""

    code = "UNKNOWN_BACKEND"


class NoEmbeddings(EmbeddingError):
    """There is nothing embedded that could be searched."""


class ProjectNotActivated(KbError):
    """A tool needs a project, and none is active."""

    code = "PROJECT_NOT_ACTIVATED"


class ExternalDocsNotConfigured(KbError):
    """The active project names no external documentation."""

    code = "EXTERNAL_DOCS_NOT_CONFIGURED"


class RateLimited(KbError):
    """A tool was called more often in a minute than it may be."""

    code = "RATE_LIMITED"


class PermissionDenied(KbError):
    """A path that leads out of the project, or to a file that is never shown."""

    code = "PERMISSION_DENIED"


class FileNotFound(KbError):
    """The project has no such file."""

    code = "FILE_NOT_FOUND"


class FileTooLarge(KbError):
    """The file has more bytes than a tool reads."""

    code = "FILE_TOO_LARGE"


class ImportsFailed(KbError):
    """A file whose imports cannot be parsed."""

    code = "FILE_SYSTEM_ERROR"


class InvalidPattern(KbError):
    """A regular expression that is malformed, or too large to be run."""

    code = "INVALID_PATTERN"


class NotFoundError(KbError):
    """A name that does not exist in the file.

    Args:
        near: gives the names that may be meant. It is asked when the error is told: to compare
            many names takes time, in which no transaction should be open.
    """

    def __init__(
        self, message: str, *, near: Callable[[], list[str]] | None = None, **details: Any
    ) -> None:
        super().__init__(message, **details)
        self._near = near

    @property
    def details(self) -> dict[str, Any]:
        if self._near is not None:
            names, self._near = self._near(), None
            if names:
                self._details["suggestions"] = names
        return self._details

    def __reduce__(self) -> tuple[Any, ...]:
        self.details  # noqa: B018 - what gives the names may not be pickled
        return super().__reduce__()  # type: ignore[return-value]


class IndexNotFound(NotFoundError):
    """No index has this name."""

    code = "INDEX_NOT_FOUND"


class CollectionNotFound(NotFoundError):
    """No collection has this name, id or alias."""

    code = "COLLECTION_NOT_FOUND"


class DocumentNotFound(NotFoundError):
    """The collection holds no such document."""

    code = "DOCUMENT_NOT_FOUND"


class DiscoveryNotFound(NotFoundError):
    """No discovery has this id."""

    code = "DOCUMENT_NOT_FOUND"


class TokenNotFound(NotFoundError):
    """Nobody of this name has a token that is valid."""

    code = "TOKEN_NOT_FOUND"


class SectionNotFound(NotFoundError):
    """The document has no such section."""

    code = "SECTION_NOT_FOUND"


class ModuleNotFound(NotFoundError):
    """No file and no discovery belongs to a module of this name."""

    code = "FILE_NOT_FOUND"


class ResourceNotFound(NotFoundError):
    """Nothing can be read at this address."""

    code = "DOCUMENT_NOT_FOUND"
