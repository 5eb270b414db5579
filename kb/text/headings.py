"""How the way to a heading is written: its ancestors' headings and its own in one text."""

PATH_SEPARATOR = " > "
TYPED_SEPARATOR = PATH_SEPARATOR.strip()  # as people write it, with blanks or without
