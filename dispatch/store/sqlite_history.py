"""The log of the graphs in a SQLite file, read and pruned beside their owners.

A reader has one snapshot for as long as it reads. What prunes holds the file's write lock for one short transaction
after another, so that an owner that wants to write waits for one of them at most.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from dispatch.errors import StoreError
from dispatch.store import codec
from dispatch.store.ownership import live_claim
from dispatch.store.port import Claim, Contents, KeyframeRow, LogRow
from dispatch.store.process import Owner, Presence
from dispatch.store.sqlite_file import connect_to_read, meaning
from dispatch.store.sqlite_rows import SQL, contents, find, held_claim, now_of
from harness.database.killpoint import killpoint


class SqliteReading:
    """One graph in one snapshot; good until its connection is closed."""

    def __init__(self, connection: sqlite3.Connection, graph: str, claim: Claim | None) -> None:
        self._connection, self._graph = connection, graph
        self._key, _ = find(connection, graph)
        self.claim = claim

    @functools.cached_property
    def contents(self) -> Contents:
        return contents(self._connection, self._graph)

    def entries(self, after: int, limit: int, kind: str = "") -> list[LogRow]:
        wanted = {"graph": self._key, "after": after, "kind": kind, "limit": limit}
        return codec.decoded(codec.log_row, self._connection.execute(SQL["read_entries"], wanted))

    def keyframe(self, seq: int) -> KeyframeRow:
        found = self._connection.execute(SQL["read_keyframe"], {"graph": self._key, "seq": seq}).fetchone()
        if found is None:
            raise StoreError(f"graph {self._graph!r} has no keyframe at entry {seq}")
        return KeyframeRow(*found)


@attrs.frozen
class SqliteHistory:
    """`clock`, `presence` and `connect` as in `SqliteStore`."""

    path: Path
    clock: Callable[[], float] | None
    presence: Callable[[Owner], Presence]
    connect: Callable[[Path], sqlite3.Connection]

    @contextlib.contextmanager
    def reading(self, graph: str) -> Iterator[SqliteReading]:
        codec.check_name(graph)
        with self._closing(connect_to_read(self.path)) as connection:
            connection.execute("BEGIN")
            held = held_claim(connection, graph, find(connection, graph)[0])
            claim = live_claim(held, now_of(connection, self.clock), self.presence)
            yield SqliteReading(connection, graph, claim)

    def keep(self, graph: str, keyframe: KeyframeRow) -> None:
        with self._writing(graph) as (connection, key):
            connection.execute(SQL["write_keyframe"], {"graph": key, **attrs.asdict(keyframe)})
            killpoint("sqlite.before-keyframe-commit")
        killpoint("sqlite.after-keyframe-commit")

    def prune(self, graph: str, keyframe: int, limit: int) -> int:
        with self._writing(graph) as (connection, key):
            given = {"graph": key, "keyframe": keyframe, "limit": limit}
            gone = connection.execute(SQL["prune_entries"], given).rowcount
            connection.execute(SQL["prune_keyframes"], {"graph": key, "keyframe": keyframe})
            killpoint("sqlite.before-prune-commit")
        killpoint("sqlite.after-prune-commit")
        return gone

    @contextlib.contextmanager
    def _writing(self, graph: str) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A transaction, and the graph's key. What was begun and not committed goes when the connection is closed."""
        with self._closing(self.connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection, find(connection, graph)[0]
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _closing(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        try:
            yield connection
        except sqlite3.Error as error:
            raise meaning(error, self.path) from error
        finally:
            connection.close()
