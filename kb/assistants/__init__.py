"""Installing kb into assistants, and checking that it works there."""
