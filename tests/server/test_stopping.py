"""A request that is cancelled does not go on in its thread."""

import threading

import anyio
import apsw

from kb.server.mcp import _read_in_thread
from kb.store.database import Database

WITHOUT_END = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def test_a_cancelled_request_ends_its_statement_and_begins_no_other() -> None:
    begun, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def search_for_ever(database: Database) -> None:
        connection = database._open_writer()
        for _ in range(2):
            try:
                with connection.deadline:
                    begun.set()
                    connection.apsw.execute(WITHOUT_END).fetchall()
            except apsw.InterruptError as error:
                errors.append(error)
        ended.set()

    async def cancel_it(database: Database) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_in_thread, search_for_ever, database)
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()

    with Database(":memory:") as database:
        anyio.run(cancel_it, database)
        assert ended.wait(30)
        assert [str(error) for error in errors][1:] == ["nobody waits for the answer"]
        with database.read() as connection:  # who comes next is not ended
            assert connection.value("count_all_chunks") == 0
