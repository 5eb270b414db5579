"""`kb serve` with tools that misbehave, for the server's tests."""

import os
import sys
import threading
from typing import Annotated

from pydantic import Field

from kb.cli.main import main
from kb.results.base import Result
from kb.tools import context
from kb.tools.call import Call
from kb.tools.registry import Tool, tool
from kb.tools.session import Session


class Answer(Result, kw_only=False):
    answer: str


@tool(title="Noisy", example={})
def noisy(kb: Session) -> Answer:
    """Write to stdout in every way there is."""
    print("a print")
    sys.stdout.write("no line end")
    sys.stdout.flush()
    os.write(1, b"from a library\n")
    os.system("echo from a child")
    return Answer("done")


def started() -> None:
    print("slow call started", file=sys.stderr, flush=True)


@tool(title="Slow", example={})
def slow(
    kb: Session,
    seconds: Annotated[float, Field(description="How long it takes.", ge=0, le=600)] = 600.0,
) -> Answer:
    """Compute for a long time."""
    started()
    threading.Event().wait(seconds)
    return Answer("done")


@tool(title="Slow read", example={})
def slow_read(kb: Call) -> Answer:
    """Read without end."""
    with kb.base.database.read() as connection:
        started()
        connection.apsw.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        ).fetchall()
    return Answer("never")


@tool(title="Crash", example={})
def crash(kb: Session) -> Answer:
    """Fail in an unforeseen way."""
    raise ZeroDivisionError("on purpose")


if __name__ == "__main__":
    # The tools are what the modules of the families hold.
    vars(context).update(
        {name: value for name, value in list(globals().items()) if isinstance(value, Tool)}
    )
    main()
