"""Searching the files of the project that the knowledge base belongs to."""

from __future__ import annotations

from kb.library.workspace import Workspace
from kb.project.tree import grep_project
from kb.results.code import CONTEXT_LINES, CodeMatches


class Code(Workspace):
    def grep(
        self,
        pattern: str,
        *,
        glob: str = "",
        case_sensitive: bool = False,
        limit: int = 1000,
        context_lines: int = CONTEXT_LINES,
    ) -> CodeMatches:
        """The lines of the project's files that match a regular expression, by path.

        Files hidden by ignore files, secrets and binary files are left out.

        Args:
            pattern: as ripgrep takes it: no look-around, no back-references.
            glob: of the files to search, such as "src/**/*.py"; by default all.

        Raises:
            InvalidPattern: the pattern is malformed or too large.
            UsageError: the glob can match nothing.
        """
        search = pattern, glob, case_sensitive, limit, context_lines
        return grep_project(self.project, *search)
