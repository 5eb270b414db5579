"""How the way to a heading is written, and a term among labels."""

PATH_SEPARATOR = " > "  # between a heading's ancestors and itself
TYPED_SEPARATOR = PATH_SEPARATOR.strip()  # as people write it, with blanks or without
TERM_MARK = "term:"  # before the terms of glossaries, among a document's labels
