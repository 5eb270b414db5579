"""The endings of files that are text, by their format. Nothing else says what is Markdown.

Source code has a list of its own, beside its grammars (kb/formats/source_code.py), and so have the
formats that are converted (kb/formats/convert/formats.py).
"""

MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdx")
RESTRUCTURED_TEXT_SUFFIXES = (".rst",)
PLAIN_TEXT_SUFFIXES = (".txt",)
ASCIIDOC_SUFFIXES = (".adoc", ".asciidoc")
ORG_SUFFIXES = (".org",)
TABLE_SUFFIXES = (".csv", ".tsv")

# What a page's name ends in, which a link to it may leave out.
PAGE_SUFFIXES = (*MARKDOWN_SUFFIXES, *PLAIN_TEXT_SUFFIXES, *RESTRUCTURED_TEXT_SUFFIXES)
# What a folder is searched for. Source code is parsed as well, where a glob names it.
TEXT_SUFFIXES = (*PAGE_SUFFIXES, *ASCIIDOC_SUFFIXES, *ORG_SUFFIXES, *TABLE_SUFFIXES)
