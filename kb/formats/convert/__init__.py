"""Files that are no text -> Markdown, in a child process.

`formats` says which files there are converters for and what each needs, `process` runs them,
`worker` is what the child does, `result` what comes back. Every other module here converts one
format and is imported in the child alone.
"""
