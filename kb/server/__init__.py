"""The protocol: what a client sends and receives."""
