"""The endings of files that are text, by their format. Nothing else says what is Markdown.

Source code has a list of its own, beside its grammars (kb/formats/source_code.py), and so have the
formats that are converted (kb/formats/convert/formats.py).
"""

import re
from posixpath import splitext

# What a folder is searched for. Source code is parsed as well, where a glob names it.
_SUFFIXES = {
    # R Markdown and Quarto are Markdown with fences that run; Cursor's rules are .mdc.
    "markdown": ".md .markdown .mdx .mkd .mkdn .mdown .mdwn .mdc .qmd .rmd",
    "restructured text": ".rst",
    "plain text": ".txt .text",
    "asciidoc": ".adoc .asciidoc .asc .ad",
    "org": ".org",
    "table": ".csv .tsv",
}
_FORMATS = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}

MARKDOWN_SUFFIXES = tuple(_SUFFIXES["markdown"].split())
# What a page's name ends in, which a link to it may leave out.
PAGE_SUFFIXES = tuple(
    suffix
    for suffix, name in _FORMATS.items()
    if name in ("markdown", "plain text", "restructured text")
)
PAGE_SUFFIX = re.compile(rf"(?:{'|'.join(map(re.escape, PAGE_SUFFIXES))})\Z", re.IGNORECASE)


def text_format(path: str) -> str:
    """A text's format by its path: "markdown", "asciidoc" ...; "" if the suffix says none."""
    return _FORMATS.get(splitext(path)[1].lower(), "")
