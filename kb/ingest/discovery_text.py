"""What the words of a discovery tell of its type."""

from __future__ import annotations

import re

__all__ = ["detect_type"]

_TYPE_SIGN = re.compile(
    r"""(?<!\w) (?:
      (?P<pattern>  we[ ]use\b | pattern[ ]is\b | convention: )
    | (?P<rule>     rule: | must[ ]always\b | requirement: )
    | (?P<decision> decided[ ]to\b | chose\b | went[ ]with\b )
    | (?P<issue>    bug: | issue: | fixed: )
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def detect_type(content: str) -> str:
    """The type that a text's own words speak of, the first ones if several do; else a pattern."""
    found = _TYPE_SIGN.search(content)
    return found.lastgroup or "pattern" if found else "pattern"
