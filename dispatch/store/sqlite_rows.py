"""What is read of a graph in a SQLite file, within whatever transaction its caller has begun."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from dispatch.store import codec
from dispatch.store.ownership import Held
from dispatch.store.port import Contents, GraphRow, Logged
from dispatch.store.process import Owner
from harness.database.queries import named_blocks

SQL = named_blocks("dispatch.store", "sqlite.sql")


def now_of(connection: sqlite3.Connection, clock: Callable[[], float] | None) -> float:
    """Unix seconds by `clock`, or by the database's own."""
    now = None if clock is None else clock()
    return float(connection.execute(SQL["now"], {"now": now}).fetchone()[0])


def find(connection: sqlite3.Connection, graph: str) -> tuple[int, GraphRow | None]:
    """The key of the graph of that name, 0 for none, and its row if it was ever written."""
    found = connection.execute(SQL["find_graph"], {"name": graph}).fetchone()
    if found is None:
        return 0, None
    key, graph_id, paused = found
    return key, None if graph_id is None else GraphRow(graph_id, paused)


def held_claim(connection: sqlite3.Connection, graph: str, key: int) -> Held | None:
    found = connection.execute(SQL["find_claim"], {"graph": key}).fetchone()
    return None if found is None else Held(graph, found[5], Owner(*found[:5]), found[6], found[7])


def contents(connection: sqlite3.Connection, graph: str) -> Contents:
    key, row = find(connection, graph)
    read = {"graph": key}
    slices = codec.decoded(codec.slice_row, connection.execute(SQL["read_slices"], read))
    slices.sort(key=lambda row: (row.seq, row.slice.id))  # here, because SQLite would spill whole specs to sort them
    attempts = codec.decoded(codec.attempt_row, connection.execute(SQL["read_attempts"], read))
    intents = codec.decoded(codec.intent_row, connection.execute(SQL["read_intents"], read))
    (last,) = connection.execute(SQL["read_last_entry"], read).fetchone()
    logged = Logged(last, tuple(connection.execute(SQL["read_keyframes"], read)))
    return Contents(row, tuple(slices), tuple(attempts), tuple(intents), logged)
