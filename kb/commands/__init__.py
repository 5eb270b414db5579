"""The commands of the command line, each a function from options to an exit code."""
