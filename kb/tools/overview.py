"""What the file holds, for the server's instructions."""

from __future__ import annotations

from kb.search.files import SearchedFile, Together
from kb.store.chunks import count_waiting
from kb.store.connection import Connection
from kb.store.contents import count_documents
from kb.text.counted import counted
from kb.tools.session import Session

MOST_DESCRIBED = 20  # collections that the server's instructions name


def describe(session: Session) -> str:
    """What the files hold, for the server's instructions."""

    def look(file: SearchedFile, connection: Connection) -> tuple[list[str], int]:
        rows = file.names.collections(connection)
        names = [
            f"{file.names.called(row).collection} "
            f"({counted(count_documents(connection, row['collection_id']), 'document')}"
            + (f": {row['description']}" if row["description"] else "")
            + ")"
            for row in rows[:MOST_DESCRIBED]
        ]
        waiting = count_waiting(connection)
        return [*names, *("" for _ in rows[MOST_DESCRIBED:])], waiting

    together = Together(session.files)
    with together.read():
        seen = together.each(look).values()
    names = [name for own, _ in seen for name in own]
    waiting = sum(count for _, count in seen)
    notices = [*session.names.notices, *together.lost, session.lost]
    wrong = "".join(f" Notice: {notice.rstrip('.')}." for notice in notices if notice)
    if not names:
        return (
            "The file holds no documents yet; `kb add FOLDER` on the command line adds some."
            f"{wrong}"
        )
    shown = [name for name in names if name][:MOST_DESCRIBED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    are = counted(waiting, "passage is", "passages are")
    pending = f" {are} not embedded yet: found by keywords." if waiting else ""
    return f"Collections: {', '.join(shown)}{more}.{pending}{wrong}"
