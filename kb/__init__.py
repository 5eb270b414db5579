"""kb: a project's knowledge in one SQLite file."""

__version__ = "0.1.0"
