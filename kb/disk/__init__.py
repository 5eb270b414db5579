"""Files: reading, containment, globs, searching, watching."""
