"""Copies of the file in other places, kept by Litestream."""
