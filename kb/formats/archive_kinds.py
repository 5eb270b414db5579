"""What the documents of an archive are: reports of research, or captured pages."""

RESEARCH, URL_CONTENT = "research", "url-content"
