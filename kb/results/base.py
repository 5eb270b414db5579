"""The base of all results: how they become the object that is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

T = TypeVar("T")

# Roughly what current models' tokenizers make of English; everything else counts a token each.
ASCII_CHARACTERS_PER_TOKEN = 4


@cache
def camel_case(name: str) -> str:
    """`total_lines` as `totalLines`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Result:
    """Base of all results and of their parts; each subclass becomes a frozen dataclass."""

    # For pydantic, which writes the protocol's schemas.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"alias_generator": camel_case}
    unsent: ClassVar[tuple[str, ...]] = ()  # fields for callers in Python alone
    wire_keys: ClassVar[dict[str, str]] = {}  # on the wire, by the field's name

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=kw_only)(cls)
        key_of = cls.__pydantic_config__.get("alias_generator", str)
        cls.wire_keys = {field.name: key_of(field.name) for field in fields(cls)}  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The object that is sent: wire keys, nested results as objects, nothing that is None."""
        pairs = (
            (key, getattr(self, name))
            for name, key in self.wire_keys.items()
            if name not in self.unsent
        )
        return {key: plain(value) for key, value in pairs if value is not None}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """A result without nested ones, from what `to_dict` gives."""
        values = {name: row.get(key) for name, key in cls.wire_keys.items()}
        return cls(**{name: value for name, value in values.items() if value is not None})


class SnakeResult(Result):
    """A result whose keys are its fields' names: those of the external and index families."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {}


class Listing(Result, Generic[T]):
    """A result that is above all a list of rows."""

    listed: ClassVar[str] = "results"  # the field that holds the rows

    def __iter__(self) -> Iterator[T]:
        return iter(getattr(self, self.listed))

    def __len__(self) -> int:
        return len(getattr(self, self.listed))


def estimate_tokens(text: str) -> int:
    """About how many tokens of an assistant's context a text takes."""
    if text.isascii():
        return len(text) // ASCII_CHARACTERS_PER_TOKEN + 1
    ascii_count = sum(map(str.isascii, text))
    return ascii_count // ASCII_CHARACTERS_PER_TOKEN + (len(text) - ascii_count) + 1


def plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


class Row(Result):
    """One row of a list; `truncated` if a budget cut its text."""

    truncated: bool | None = None


class Located(Row):
    """Where the text is in a converted file; the end if it differs."""

    page: int | None = None
    end_page: int | None = None
    slide: int | None = None
    end_slide: int | None = None
    sheet: str | None = None
    end_sheet: str | None = None
    cell: int | None = None
    end_cell: int | None = None


class InCollection(Result):
    collection: str  # an alias if there is one
    collection_id: str | None = None  # the id if `collection` is an alias
