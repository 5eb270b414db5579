"""Secrets in a text: keys, tokens, private keys, passwords in assignments and addresses.

The formats are those of the package redact-secret, which keeps hundreds of them, is compiled and
has nothing to load. It leaves out passwords that look like examples (`password=hunter2`), and
people do use those: one pattern below finds them. See docs/decisions/0006-projects-and-context.md
for the other detectors that were tried.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from kb.text.decode import encodable

__all__ = ["Secret", "secrets_in"]

# The package refuses texts that are longer or hold more than it is told to expect.
MOST_BYTES = 1 << 40
MOST_FINDINGS = 1 << 40
_KINDS = {"contextual_secret": "secret in an assignment", "jwt": "JSON web token"}
_PASSWORD = "password"

# A value with a digit or a sign in it behind a name that says password. What only leads to the
# password (a variable, a call, a placeholder, a path) is none. Every repetition is bounded.
_ASSIGNED_PASSWORD = re.compile(
    r"""[Pp] (?: (?i:ass(?:word|wd|phrase|wort)) | (?i:wd) | (?<!\w.) (?i:ass) )
        ["']? [ \t]{0,4} (?: := | => | [:=] ) [ \t]{0,4} ["'`]?
        (?! [$<{(\[%*./\\~=-] )
        (?! [A-Za-z_]\w{0,60} (?: \. | :: | -> ) [A-Za-z_] )
        (?= [^\s"'`]{0,40} [0-9!@#$%^&*?] )
        [^\s"'`,;()\[\]{}<>\\/]{6,128}
        (?! [(\[{<\\/] )
    """,
    re.VERBOSE,  # ignoring case in the first letter makes the search three times slower
)
# One of our own, which opens a file to whoever shows it to a server: see kb/store/tokens.py.
# The letters come first: the search goes from one "kb_" to the next.
_OWN_TOKEN = re.compile(r"kb_(?<![\w-]kb_)[\w-]{43}(?![\w-])")


class Secret(NamedTuple):
    """Where something stands that looks like a secret; never the secret itself."""

    line: int  # from 1
    kind: str  # in words, such as "github token"


def secrets_in(text: str) -> list[Secret]:
    """What looks like a secret in a text, by line; one a line and kind."""
    import redact_secret  # here, so that only who asks waits for it

    whole = encodable(text)  # lone surrogates are refused as no text
    limits = redact_secret.WholeInputLimits(max_input_bytes=MOST_BYTES, max_findings=MOST_FINDINGS)
    found = [
        (finding.start, _KINDS.get(finding.type, finding.type.replace("_", " ")))
        for finding in redact_secret.scan(whole, limits=limits)
    ]
    found += [(match.start(), "kb token") for match in _OWN_TOKEN.finditer(whole)]
    assigned = [match.start() for match in _ASSIGNED_PASSWORD.finditer(whole)]
    if not (found or assigned):
        return []
    ends = [match.start() for match in re.finditer("\n", whole)]
    secrets = {Secret(bisect_right(ends, start - 1) + 1, kind) for start, kind in found}
    known = {secret.line for secret in secrets}
    lines = {bisect_right(ends, start - 1) + 1 for start in assigned}
    return sorted(secrets | {Secret(line, _PASSWORD) for line in lines - known})
