"""kb: a project's knowledge in one SQLite file."""

from pathlib import Path

__version__ = "0.1.0"

# Where the files that come with kb lie. `importlib.resources` would find them in archives too, but
# takes 4 ms of every start to load; what kb runs on does not come in one either.
PACKAGE = Path(__file__).parent
