"""The exit codes of commands: README.md lists them for scripts."""

DONE, NOTHING_FOUND, WRONG_USE, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130
