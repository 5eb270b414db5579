"""Parameters that tools of several families take."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

LAST_POSITION = 1_000_000_000  # no list and no document is longer
LONGEST_NAME = 4096  # characters; no path of a system is longer
LONGEST_GLOB = 1000
MOST_NAMES = 1000  # in one list

StartLine = Annotated[
    int,
    Field(description="First line to return, from 1; 0: the start.", ge=0, le=LAST_POSITION),
]
EndLine = Annotated[
    int, Field(description="Last line to return; 0: the end.", ge=0, le=LAST_POSITION)
]
StartCharacter = Annotated[
    int,
    Field(
        description="Characters of the first line to leave out, to go on inside a long line.",
        ge=0,
        le=LAST_POSITION,
    ),
]
