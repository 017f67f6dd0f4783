"""Which graphs a SQLite store holds, read without claiming or disturbing anything."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dispatch.store.queries import named_blocks
from dispatch.store.sqlite_file import connect_to_read, meaning

_SQL = named_blocks("sqlite.sql")


def graph_names(path: Path) -> tuple[str, ...]:
    """The names of the graphs in the file, sorted. Raises `StoreError` and `StoreUnavailableError` as a store does."""
    connection = connect_to_read(path)
    try:
        return tuple(name for (name,) in connection.execute(_SQL["graph_names"]))
    except sqlite3.Error as error:
        raise meaning(error, path) from error
    finally:
        connection.close()
