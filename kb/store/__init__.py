"""The file: one opener, and one module a group of tables."""
