"""Installing kb into assistants, and looking whether all is sound."""
