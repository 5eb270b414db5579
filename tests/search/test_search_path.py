"""How much code a search goes through, from the tool to its SQL and back to the reply.

Counted by `sys.setprofile` over one warm `documents_search` through `call_tool`: the same question
was asked once before, so that modules are loaded, and the file and the question's vector known. A
function counts once, however often it is entered; comprehensions, generator expressions and lambdas
are parts of the function in which they stand. A module counts where one of its functions does.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from support import call

import kb
from kb.tools.session import Session

# docs/decisions/0027-one-search.md has the figures, and the goals: 25 and 120.
MAX_MODULES = 25
MAX_FUNCTIONS = 162
PACKAGE = str(Path(kb.__file__).parent)


def test_a_search_goes_through_few_modules_and_functions(windrose: Session) -> None:
    question = {"query": "what happens when the battery is low?"}
    call(windrose, "documents_search", **question)
    windrose.base.file.archive_folders.next_look = math.inf  # else it is due after three seconds
    entered: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            entered.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call(windrose, "documents_search", **question)
    finally:
        sys.setprofile(before)
    assert len({file for file, _ in entered}) <= MAX_MODULES
    assert len(entered) <= MAX_FUNCTIONS
