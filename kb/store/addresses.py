"""Where documents are read on the web: fetched from there, or published there by their manifest."""

from __future__ import annotations

from urllib.parse import quote

from kb.store.connection import Row

__all__ = ["address_fields", "address_of"]


def address_of(row: Row, path: str) -> str | None:
    """The address of a document, from a row with `own_url` and `base_url`; None without."""
    own, base = row["own_url"], row["base_url"]
    if isinstance(own, str) and own.startswith(("http://", "https://")):
        return own
    return f"{base.rstrip('/')}/{quote(path)}" if isinstance(base, str) and base else None


def address_fields(row: Row, path: str) -> dict[str, str]:
    """As `address_of`, as `{"url": ...}`, or nothing."""
    url = address_of(row, path)
    return {"url": url} if url else {}
