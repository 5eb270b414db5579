"""Sources become documents, chunks and vectors, and are kept fresh."""
