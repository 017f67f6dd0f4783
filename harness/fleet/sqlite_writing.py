"""Who writes to a SQLite file, within a process: one after another.

Left to SQLite, whoever finds another writing sleeps for a while and looks again, even if that one is the next thread.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

_guard = threading.Lock()
_turns: weakref.WeakValueDictionary[Path, threading.Lock] = weakref.WeakValueDictionary()


class Writing:
    """Transactions of one client of the file `path`, which waits for others for `patience_s` seconds. It sees to it
    itself that no two of its threads are in one."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._turn, self._patience_s = _turn_at(path), patience_s
        self._connection: sqlite3.Connection | None = None
        self._is_durable = True

    @contextlib.contextmanager
    def transaction(self, connection: sqlite3.Connection, *, durable: bool) -> Iterator[None]:
        """From BEGIN IMMEDIATE to COMMIT, which is the block's end, or ROLLBACK. Of one that is not durable a power cut
        may take the last moments, but never a part. Connections are opened for durable ones."""
        with _taking(self._turn, self._patience_s):
            if connection is not self._connection:
                self._connection, self._is_durable = connection, True
            if durable is not self._is_durable:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._is_durable = durable
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _turn_at(path: Path) -> threading.Lock:
    """The turn to write to that file. It goes when none of its clients has it any more."""
    with _guard:
        turn = _turns.get(path)
        if turn is None:
            turn = _turns[path] = threading.Lock()
        return turn


@contextlib.contextmanager
def _taking(turn: threading.Lock, patience_s: float) -> Iterator[None]:
    """Holds the turn, or goes on without it after so many seconds: then SQLite has the last word."""
    is_ours = turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if is_ours:
            turn.release()
