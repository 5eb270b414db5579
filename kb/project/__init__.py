"""A project's own files: configuration, activation, tree, imports."""
