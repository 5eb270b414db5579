"""One module per family of tools, and the one way to call a tool."""
