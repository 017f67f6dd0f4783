"""Following a graph in a SQLite file. The hint is the file's change counter, as SQLite keeps it for each connection."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dispatch.errors import StoreUnavailableError
from dispatch.store.following import Position
from dispatch.store.ownership import live_claim
from dispatch.store.port import Claim, Contents
from dispatch.store.process import Owner, Presence
from dispatch.store.sqlite_file import connect_to_read, meaning
from dispatch.store.sqlite_rows import SQL, contents, find, held_claim, now_of
from harness.database.sqlite_file import identity

STEP_S = 0.05  #: between two looks at the counter, each of which costs some microseconds and touches no disk


class SqliteLook:
    """`clock` and `presence` as in `SqliteStore`."""

    def __init__(
        self, path: Path, graph: str, clock: Callable[[], float] | None, presence: Callable[[Owner], Presence]
    ) -> None:
        self._path, self._graph, self._clock, self._presence = path, graph, clock, presence
        self._file = identity(path)
        self._connection = connect_to_read(path)
        self._count = -1

    def position(self) -> Position:
        if identity(self._path) != self._file:  # in the file that is still open nothing will ever change
            raise StoreUnavailableError(f"{self._path} was removed or replaced")
        with self._meaningful():
            self._count = self._counter()
            return self._position()[0]

    def read(self) -> tuple[Position, Contents, Claim | None]:
        with self._meaningful():
            self._connection.execute("BEGIN")
            try:
                position, claim = self._position()
                return position, contents(self._connection, self._graph), claim
            finally:
                self._connection.execute("COMMIT")

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._meaningful():
            while self._counter() == self._count and (left := end - time.monotonic()) > 0:
                time.sleep(min(STEP_S, left))

    def close(self) -> None:
        self._connection.close()

    def _position(self) -> tuple[Position, Claim | None]:
        key, _ = find(self._connection, self._graph)
        held = held_claim(self._connection, self._graph, key)
        claim = live_claim(held, now_of(self._connection, self._clock), self._presence)
        (last,) = self._connection.execute(SQL["read_last_entry"], {"graph": key}).fetchone()
        return Position(last, held.epoch if held is not None else 0, claim is not None), claim

    def _counter(self) -> int:
        (count,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(count)

    @contextlib.contextmanager
    def _meaningful(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise meaning(error, self._path) from error
