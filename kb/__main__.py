"""`python -m kb`."""

from kb.cli.main import main

main()
