"""Secrets in a text: keys, tokens, private keys, passwords in assignments and addresses.

The formats are those of the package redact-secret, which keeps hundreds of them, is compiled and
has nothing to load. `kb/assets/secrets.toml` adds prefixes, patterns for other shapes, and
passwords that look like examples (`password=hunter2`), as people do use those.
docs/decisions/0006-projects-and-context.md tells of other detectors.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from typing import NamedTuple

from kb.text.assets import asset
from kb.text.decode import encodable

# The package refuses texts that are longer or hold more than it is told to expect.
MAX_BYTES = 1 << 40
MAX_FINDINGS = 1 << 40
_KINDS = {"contextual_secret": "secret in an assignment", "jwt": "JSON web token"}
_PASSWORD = "password"


@cache
def _patterns() -> tuple[str, dict[str, re.Pattern[str]], re.Pattern[str]]:
    """Rules for the package, patterns by kind, and the pattern of assigned passwords."""
    stored = asset("secrets")
    # The package refuses rules with names of its own: with our prefix no later one takes these.
    rules = "ruleset-revision: 1\n" + "".join(
        f'detector: kb.{kind}\nspecificity: contextual\nprefix: "{prefix}"\nalphabet: {alphabet}\n'
        f"run: {run}\nvalidator: none\n"
        for kind, prefix, alphabet, run in stored["prefixes"]
    )
    shapes = {kind: re.compile(text, re.VERBOSE) for kind, text in stored["shapes"].items()}
    return rules, shapes, re.compile(stored["assigned_password"], re.VERBOSE)


class Secret(NamedTuple):
    """Where something looks like a secret; never the secret itself."""

    line: int  # from 1
    kind: str  # in words, such as "github token"


def _plain(kind: str) -> str:
    return re.sub("[_-]", " ", kind.removeprefix("kb."))


def secrets_in(text: str) -> list[Secret]:
    """What looks like a secret in a text, by line; one for each line and kind."""
    import redact_secret  # here, so that only who asks waits for it

    rules, shapes, assignment = _patterns()
    whole = encodable(text)  # lone surrogates are refused as no text
    limits = redact_secret.WholeInputLimits(max_input_bytes=MAX_BYTES, max_findings=MAX_FINDINGS)
    matches = [
        (finding.start, _KINDS.get(finding.type) or _plain(finding.type))
        for finding in redact_secret.scan(whole, limits=limits, ruleset=rules)
    ]
    for kind, shape in shapes.items():
        matches += [(match.start(), kind) for match in shape.finditer(whole)]
    assigned = [match.start() for match in assignment.finditer(whole)]
    if not (matches or assigned):
        return []
    ends = [match.start() for match in re.finditer("\n", whole)]
    secrets = {Secret(bisect_right(ends, start - 1) + 1, kind) for start, kind in matches}
    secret_lines = {secret.line for secret in secrets}
    lines = {bisect_right(ends, start - 1) + 1 for start in assigned}
    return sorted(secrets | {Secret(line, _PASSWORD) for line in lines - secret_lines})
