"""The library: what a Python user calls, and what every door of kb is built on."""
