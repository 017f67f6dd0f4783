"""Following a graph in a PostgreSQL database. The hint is a notification that the owner sends with each batch.

Behind a pooler that hands out connections by transaction none arrives; then the position is asked for once a second.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatch.store.following import Position
from dispatch.store.ownership import Held, live_claim
from dispatch.store.port import Claim, Contents
from dispatch.store.postgres_connection import meaningful
from dispatch.store.postgres_reading import READING_PATIENCE_S, begin, contents, find
from dispatch.store.postgres_schema import SQL, STORE
from dispatch.store.process import Owner, Presence
from harness.database.postgres_schema import COMMIT
from harness.database.postgres_wire import Statement, Wire, statement

LISTEN = Statement(SQL["listen"])


class PostgresLook:
    """Owns `wire`. `clock` and `presence` as in `PostgresStore`."""

    def __init__(
        self,
        wire: Wire,
        url: str,
        graph: str,
        clock: Callable[[], float] | None,
        presence: Callable[[Owner], Presence],
    ) -> None:
        self._wire, self._url, self._graph, self._clock, self._presence = wire, url, graph, clock, presence
        self._key = 0
        with meaningful(self._url):
            STORE.check_ready(wire, url)
            wire.run([LISTEN], READING_PATIENCE_S)

    def position(self) -> Position:
        with meaningful(self._url):
            now, self._key, _, held = find(self._wire, self._graph, self._clock)
            return self._position(now, held)[0]

    def read(self) -> tuple[Position, Contents, Claim | None]:
        with meaningful(self._url):
            begin(self._wire)
            now, self._key, row, held = find(self._wire, self._graph, self._clock)
            position, claim = self._position(now, held)
            found = contents(self._wire, self._key, row)
            self._wire.run([COMMIT], READING_PATIENCE_S)
            return position, found, claim

    def pause(self, seconds: float) -> None:
        with meaningful(self._url):
            self._wire.notified(seconds, str(self._key).encode())

    def close(self) -> None:
        self._wire.close()

    def _position(self, now: float, held: Held | None) -> tuple[Position, Claim | None]:
        asked = statement(SQL["read_last_entry"], self._key)
        (result,) = self._wire.run([asked], READING_PATIENCE_S, binary=True)
        ((last,),) = self._wire.rows(result)
        claim = live_claim(held, now, self._presence)
        return Position(last, held.epoch if held is not None else 0, claim is not None), claim
