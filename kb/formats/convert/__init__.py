"""Files that are not text -> Markdown, in a child process.

`formats` lists the converters and what each needs, `process` runs them, `worker` is the child,
`result` is what comes back, `completeness` what did not. `address` reads a saved page's address
before the conversion. The child alone imports the other modules, each a part of one conversion.
"""
