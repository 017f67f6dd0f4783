"""Work items in a SQLite file: write-ahead log, every commit on the disk before it returns, one writer at a time.

Every writing transaction begins with BEGIN IMMEDIATE: a deferred one that reads first and then finds another writer
fails at once, whatever the busy timeout.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from harness.database.killpoint import killpoint
from harness.database.sqlite_file import identity
from harness.fleet import ledger
from harness.fleet.authority.sqlite_file import BUSY_TIMEOUT_S, FILE
from harness.fleet.authority.sqlite_rows import SQL, SqliteRows
from harness.fleet.authority.sqlite_sessions import SqliteSessionLocks, SqliteWatch
from harness.fleet.authority.stored import Asked, Row, StoredAuthority, Value, handed
from harness.fleet.authority.terms import TERMS
from harness.fleet.commands import Command
from harness.fleet.ledger import Session
from harness.fleet.ports import Result
from harness.fleet.sqlite_writing import Writing
from harness.fleet.work_item import WorkItem

Answer = TypeVar("Answer")
_PRUNED = 100  #: items in one transaction of a pruning, so that nobody waits long for it


class SqliteWorkItems(StoredAuthority):
    """An authority in the file `path`, which is made when it is first used.

    `clock` gives Unix seconds in place of the database's own; `connect` opens the file for writing.
    """

    schema = len(FILE.migrations)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        connect: Callable[[Path], sqlite3.Connection] = FILE.connect,
    ) -> None:
        super().__init__(clock)
        self.path = Path(path).absolute()
        self._connect, self._mutex = connect, threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._writing = Writing(self.path, BUSY_TIMEOUT_S)
        self.session_locks = SqliteSessionLocks(self.path)

    def __repr__(self) -> str:
        return f"SqliteWorkItems({str(self.path)!r})"

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        with self.writing() as connection:
            results = ledger.perform(self.rows(connection), commands)
            killpoint("sqlite.before-perform-commit")
        killpoint("sqlite.after-perform-commit")
        return results

    def undelivered(self, limit: int, handed_before_s: float) -> tuple[WorkItem, ...]:
        with self.using() as connection:  # as often as not there is nothing, and nobody is to wait for that
            if not self.rows(connection).undelivered(1, handed_before_s):
                return ()
        with self.writing() as connection:
            rows = self.rows(connection)
            taken = handed(rows.undelivered(limit, handed_before_s), rows.now())
            rows.save([], taken, [], [])
        return tuple(taken)

    def prune(self, before: float) -> int:
        count, last, found = 0, 0, [0]
        while found:
            with self.writing() as connection:
                found = [seq for (seq,) in connection.execute(SQL["find_prunable"], (before, last, _PRUNED))]
                self._forget(connection, found)
            count, last = count + len(found), max(found, default=last)
        while self._tell(("prune_contents", (before, _PRUNED)))[0]:
            pass
        return count

    def lock_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        with self.locking() as connection:
            return self.session_locks.lock(connection, sessions)

    def seize_sessions(self, sessions: Sequence[Session]) -> tuple[bool, ...]:
        with self.locking() as connection:
            return self.session_locks.seize(connection, sessions)

    def unlock_sessions(self, sessions: Sequence[Session]) -> None:
        with self.locking() as connection:
            self.session_locks.unlock(connection, sessions)

    def watch(self) -> SqliteWatch:
        with self.using():  # it is made, if it was not there
            return SqliteWatch(self.path)

    def close(self) -> None:
        with self._mutex:
            connection, self._connection = self._connection, None
            self.session_locks.close(connection)
            if connection is not None:
                connection.close()

    def _forget(self, connection: sqlite3.Connection, found: Sequence[int]) -> None:
        for block in ("note_pruned", "prune_outcomes", "prune_waits", "prune_messages", "prune_items"):
            connection.executemany(SQL[block], ((seq,) for seq in found))

    def _ask(self, *asked: Asked) -> list[list[Row]]:
        with self.using() as connection:
            if len(asked) == 1:
                return _answers(connection, asked)
            connection.execute("BEGIN")
            answers = _answers(connection, asked)
            connection.execute("COMMIT")
            return answers

    def _tell(self, *asked: Asked) -> list[list[Row]]:
        with self.writing() as connection:
            return _answers(connection, asked)

    # -- the connection ------------------------------------------------------------------------------------------------

    def rows(self, connection: sqlite3.Connection, *, presumes_new: bool = False) -> SqliteRows:
        """In a transaction that was begun by `writing`."""
        return SqliteRows(connection, self._clock, presumes_new=presumes_new)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that ends with the block."""
        with self.using() as connection, self._writing.transaction(connection, durable=durable):
            yield connection

    def locking(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A transaction for locks on sessions, which no power cut outlives: it doesn't wait for the disk."""
        self.join()
        return self.writing(durable=False)

    def join(self) -> None:
        """Those who lock sessions."""
        if not self.session_locks.is_joined:
            with self.writing(durable=False) as connection:
                if not self.session_locks.is_joined:
                    self.session_locks.join(connection)

    @contextlib.contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time. What was begun and not committed when the block fails did not
        happen."""
        FILE.refuse_after_fork(self.path)
        with self._mutex:
            connection = self._connected()
            try:
                yield connection
            except BaseException as error:
                self._give_up(connection)
                if isinstance(error, sqlite3.Error):
                    raise FILE.meaning(error, self.path) from error
                raise

    def _connected(self) -> sqlite3.Connection:
        """What was decided in a file that is gone counts for nobody else: that is no outage to wait for."""
        if self._connection is not None and identity(self.path) != self._file:
            self._connection.close()
            self._connection = None
            raise TERMS.error(f"{self.path} was removed or replaced while in use; put it back, or start again")
        if self._connection is None:
            connection = self._connect(self.path)
            FILE.insist(connection, self.path, "busy_timeout", round(BUSY_TIMEOUT_S * 1000))
            self._connection, self._file = connection, identity(self.path)
        return self._connection

    def _give_up(self, connection: sqlite3.Connection) -> None:
        """What was begun did not happen. If even that can't be said to the file, the next use opens it anew."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection = None
            connection.close()


def _answers(connection: sqlite3.Connection, asked: Sequence[Asked]) -> list[list[Row]]:
    return [connection.execute(SQL[block], tuple(map(_bound, values))).fetchall() for block, values in asked]


def _bound(value: Value) -> str | int | float | bytes | None:
    return json.dumps(value) if isinstance(value, list) else value
