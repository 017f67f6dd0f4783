"""The log of the graphs in a PostgreSQL database, read and pruned beside their owners, each time on a new connection.

Neither keeps an owner waiting: a reader sees one moment, and rows that are deleted are none that anybody writes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from dispatch.errors import StoreError
from dispatch.store import codec
from dispatch.store.ownership import live_claim
from dispatch.store.port import Claim, Contents, GraphRow, KeyframeRow, LogRow
from dispatch.store.postgres_connection import meaningful, wire_to
from dispatch.store.postgres_reading import (
    LOCK_TIMEOUT_S,
    READING_PATIENCE_S,
    STATEMENT_TIMEOUT_S,
    begin,
    contents,
    find,
)
from dispatch.store.postgres_rows import keyframe_statement
from dispatch.store.postgres_schema import SQL, STORE
from dispatch.store.process import Owner, Presence
from harness.database.killpoint import killpoint
from harness.database.postgres import Connect, Location
from harness.database.postgres_schema import BEGIN, COMMIT, limits
from harness.database.postgres_wire import Statement, Wire, statement


class PostgresReading:
    """One graph in one transaction; good until its connection is closed."""

    def __init__(self, wire: Wire, url: str, key: int, row: GraphRow | None, claim: Claim | None) -> None:
        self._wire, self._url, self._key, self._row = wire, url, key, row
        self.claim = claim

    @functools.cached_property
    def contents(self) -> Contents:
        with meaningful(self._url):
            return contents(self._wire, self._key, self._row)

    def entries(self, after: int, limit: int, kind: str = "") -> list[LogRow]:
        with meaningful(self._url):
            return codec.decoded(codec.log_row, self._rows("read_entries", after, kind, limit))

    def keyframe(self, seq: int) -> KeyframeRow:
        with meaningful(self._url):
            found = self._rows("read_keyframe", seq)
        if not found:
            raise StoreError(f"{self._url} has no keyframe at entry {seq}")
        return KeyframeRow(*found[0])

    def _rows(self, name: str, *values: int | str) -> list[tuple[Any, ...]]:
        asked = statement(SQL[name], self._key, *values)
        (result,) = self._wire.run([asked], READING_PATIENCE_S, binary=True)
        return self._wire.rows(result)


@attrs.frozen
class PostgresHistory:
    """`clock`, `presence` and `connect` as in `PostgresStore`."""

    location: Location
    clock: Callable[[], float] | None
    presence: Callable[[Owner], Presence]
    connect: Connect

    @contextlib.contextmanager
    def reading(self, graph: str) -> Iterator[PostgresReading]:
        codec.check_name(graph)
        url = self.location.url
        with self._connected() as wire:
            with meaningful(url):
                begin(wire)
                now, key, row, held = find(wire, graph, self.clock)
            yield PostgresReading(wire, url, key, row, live_claim(held, now, self.presence))

    def keep(self, graph: str, keyframe: KeyframeRow) -> None:
        with self._connected() as wire, meaningful(self.location.url):
            key = find(wire, graph, self.clock)[1]
            wire.run([*_begun(), keyframe_statement(keyframe, key)], READING_PATIENCE_S)
            killpoint("postgres.before-keyframe-commit")
            wire.run([COMMIT], READING_PATIENCE_S)
        killpoint("postgres.after-keyframe-commit")

    def prune(self, graph: str, keyframe: int, limit: int) -> int:
        with self._connected() as wire, meaningful(self.location.url):
            key = find(wire, graph, self.clock)[1]
            pruning = [
                statement(SQL["prune_entries"], key, keyframe, limit),
                statement(SQL["prune_keyframes"], key, keyframe),
            ]
            *_, gone, _ = wire.run([*_begun(), *pruning], READING_PATIENCE_S)
            killpoint("postgres.before-prune-commit")
            wire.run([COMMIT], READING_PATIENCE_S)
        killpoint("postgres.after-prune-commit")
        return int(gone.get_value(0, 0) or b"")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Wire]:
        """What isn't committed when the connection is closed hasn't been."""
        wire = wire_to(self.location, self.connect)
        try:
            with meaningful(self.location.url):
                STORE.check_ready(wire, self.location.url)
            yield wire
        finally:
            wire.close()


def _begun() -> list[Statement]:
    return [BEGIN, limits(LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S)]
