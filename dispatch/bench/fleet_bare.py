"""The floor under a queue: one table, a claim that skips what is locked, and a delete, in a loop as plain as it can be.

Nothing is fenced, nobody is leased, no order but priority and arrival, no record of what was done. A claim takes up to
a batch of turns, which are done one after another; then one delete ends them all. On SQLite, the same with
`BEGIN IMMEDIATE`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg import sql

from dispatch.bench.fleet_member import Teller

_LOOK_S = 0.002  #: between two looks into a SQLite file
_LISTEN_S = 0.1  #: between two looks whether it is over
_PATIENCE_S = 30.0  #: for whoever else writes to a SQLite file


class BarePostgres:
    """The table of one batch size, in the database at `place`."""

    work = f"{__name__}:work_postgres"

    def __init__(self, place: str, batch: int) -> None:
        self.name, self.place, self.batch = f"bare {batch}", place, batch
        self._connection = psycopg.connect(place, autocommit=True)
        self._connection.execute(
            _of(
                "CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL,"
                " priority smallint NOT NULL DEFAULT 2, enqueued_at timestamptz NOT NULL DEFAULT now(),"
                " taken_at timestamptz)",
                batch,
            )
        )
        self._connection.execute(_of("CREATE INDEX ON {table} (priority, id) WHERE taken_at IS NULL", batch))
        self._one = _of("INSERT INTO {table} (name) VALUES (%s)", batch)
        self._many = _of("INSERT INTO {table} (name) SELECT unnest(%s::text[])", batch)
        self._notify = _of("NOTIFY {table}", batch)

    def admit(self, names: Sequence[str]) -> None:
        with self._connection.pipeline(), self._connection.transaction():
            if len(names) == 1:
                self._connection.execute(self._one, names, prepare=True)
            else:
                self._connection.execute(self._many, (list(names),), prepare=True)
            self._connection.execute(self._notify)

    def close(self) -> None:
        self._connection.close()


def work_postgres(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """Woken by a notification."""
    claim = _of(
        "UPDATE {table} SET taken_at = now() WHERE id IN (SELECT id FROM {table} WHERE taken_at IS NULL"
        " ORDER BY priority, id FOR UPDATE SKIP LOCKED LIMIT %s) RETURNING id",
        batch,
    )
    end = _of("DELETE FROM {table} WHERE id = ANY (%s)", batch)
    with closing(psycopg.connect(place, autocommit=True)) as connection:
        connection.execute(_of("LISTEN {table}", batch))
        tell.ready()
        while not over.is_set():
            claimed = connection.execute(claim, (batch,), prepare=True).fetchall()
            if not claimed:
                list(connection.notifies(timeout=_LISTEN_S, stop_after=1))
                continue
            tell.started()
            connection.execute(end, ([number for (number,) in claimed],), prepare=True)
            tell.done(len(claimed))


class BareSqlite:
    """A file of its own in the folder at `place`, as durable as the product's."""

    work = f"{__name__}:work_sqlite"

    def __init__(self, folder: str, batch: int) -> None:
        self.name, self.batch = f"bare {batch}", batch
        self.place = str(Path(folder, f"bare-{batch}.db"))
        self._connection = _connected(self.place)
        self._connection.executescript(
            "CREATE TABLE turns (id INTEGER PRIMARY KEY, name TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 2,"
            " enqueued_at REAL NOT NULL DEFAULT 0, taken_at REAL);"
            "CREATE INDEX waiting ON turns (priority, id) WHERE taken_at IS NULL"
        )

    def admit(self, names: Sequence[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO turns (name) VALUES (?)", [(name,) for name in names])
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def work_sqlite(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """Looks into the file every other millisecond while there is nothing."""
    with closing(_connected(place)) as connection:
        tell.ready()
        while not over.is_set():
            claimed = _claimed(connection, batch)
            if not claimed:
                over.wait(_LOOK_S)
                continue
            tell.started()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM turns WHERE id = ?", claimed)
            connection.execute("COMMIT")
            tell.done(len(claimed))


def _connected(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=_PATIENCE_S, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _claimed(connection: sqlite3.Connection, batch: int) -> list[tuple[int]]:
    if connection.execute("SELECT 1 FROM turns WHERE taken_at IS NULL LIMIT 1").fetchone() is None:
        return []
    connection.execute("BEGIN IMMEDIATE")
    claimed = connection.execute(
        "UPDATE turns SET taken_at = ? WHERE id IN"
        " (SELECT id FROM turns WHERE taken_at IS NULL ORDER BY priority, id LIMIT ?) RETURNING id",
        (time.time(), batch),
    ).fetchall()
    connection.execute("COMMIT")
    return claimed


def _of(text: str, batch: int) -> sql.Composed:
    return sql.SQL(text).format(table=sql.Identifier(f"bare_{batch}"))
