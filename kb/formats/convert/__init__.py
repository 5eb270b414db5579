"""Converts files that are not text to Markdown, in a child process.

`formats` lists the converters and what each needs, `process` runs them, `worker` is the child,
`result` is what comes back, `completeness` checks what did not. `address` reads a saved page's
address before the conversion. Only the child imports the other modules, parts of one conversion.
"""
