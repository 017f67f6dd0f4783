"""Locks on sessions between the processes of one machine, in a SQLite authority, and a look-out for changes of it.

A lock is a row that names its client. Whether that client still lives is told by the kernel: each has locked the byte
of its number in a file beside the database, and that lock ends with its process. Source: fcntl(2), open file
description locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.fleet.authority.sqlite_file import FILE
from harness.fleet.authority.sqlite_rows import SQL
from harness.fleet.ledger import Session

STEP_S = 0.05  #: between two looks at the file's change counter, each of which takes some microseconds


class SqliteSessionLocks:
    """Those of one client, which has to join first. Everything happens in transactions of the caller's that write."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-clients")
        self._file = -1
        self._number = 0

    @property
    def is_joined(self) -> bool:
        return self._file >= 0

    def join(self, connection: sqlite3.Connection) -> None:
        """In a transaction of its own: a number that was taken back would be another client's too."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        ((self._number,),) = connection.execute(SQL["add_client"]).fetchall()
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK, self._number))
        self._file = file

    def lock(self, connection: sqlite3.Connection, sessions: Sequence[Session]) -> tuple[bool, ...]:
        return tuple([self._try(connection, session) for session in sessions])

    def seize(self, connection: sqlite3.Connection, sessions: Sequence[Session]) -> tuple[bool, ...]:
        """Whose it was learns it from its lease, which it has lost, like a client whose connection was cut."""
        return tuple([self._take(connection, session) for session in sessions])

    def unlock(self, connection: sqlite3.Connection, sessions: Sequence[Session]) -> None:
        connection.executemany(SQL["drop_session_lock"], ((*session, self._number) for session in sessions))

    def close(self, connection: sqlite3.Connection | None) -> None:
        if self._file >= 0:
            if connection is not None:
                connection.execute(SQL["drop_client"], (self._number,))
            os.close(self._file)
            self._file = -1

    def _try(self, connection: sqlite3.Connection, session: Session) -> bool:
        found = connection.execute(SQL["find_session_lock"], session).fetchone()
        if found is not None and (found[0] == self._number or self._lives(found[0])):
            return False
        connection.execute(SQL["take_session_lock"], (*session, self._number))
        return True

    def _take(self, connection: sqlite3.Connection, session: Session) -> bool:
        found = connection.execute(SQL["find_session_lock"], session).fetchone()
        if found is not None and found[0] == self._number:
            return False
        connection.execute(SQL["take_session_lock"], (*session, self._number))
        return True

    def _lives(self, number: int) -> bool:
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK, number))
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


_FLOCK = "hhqqi4x"  #: type, whence, start, length, pid: struct flock of 64-bit Linux


def _range(kind: int, number: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, number, 1, 0)


class SqliteWatch:
    """By the file's change counter, as SQLite keeps it for a connection that only reads."""

    def __init__(self, path: Path, sleep: Callable[[threading.Event, float], object] = threading.Event.wait) -> None:
        self._path, self._sleep = path, sleep
        self._connection = FILE.connect_to_read(path)
        self._closed, self._mutex = threading.Event(), threading.Lock()
        self._seen = self._counter()

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            with self._mutex:
                counter = self._seen if self._closed.is_set() else self._counter()
            if counter != self._seen:
                self._seen = counter
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._sleep(self._closed, min(STEP_S, left))
        return False

    def close(self) -> None:
        self._closed.set()
        with self._mutex, contextlib.suppress(sqlite3.ProgrammingError):
            self._connection.close()

    def _counter(self) -> int:
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise FILE.meaning(error, self._path) from error
