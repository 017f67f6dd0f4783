"""A PostgreSQL authority's way to its server: one connection, made when it is needed and again when it was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from harness.database.postgres import Connect, Location
from harness.database.postgres_schema import BEGIN, ROLLBACK, SchemaKind, limit_session, limits
from harness.database.postgres_wire import NOT_FOLLOWED, BrokenError, RefusedError, Result, Statement, Wire, statement
from harness.database.queries import migrations, named_blocks
from harness.fleet.authority.terms import TERMS
from harness.fleet.errors import FleetError

SQL = named_blocks("harness.fleet.authority", "postgres.sql")
SCHEMA = SchemaKind(
    schema="agent_dispatch",
    versions=("authority_version", "queue_version"),
    lock=7018690069354607360,  # that of the queue too: the schema is made by whoever is first
    migrations=migrations("harness.fleet.authority", "postgres"),
    terms=TERMS,
    name="authority",
    advice="start a worker on it first, or name another database in STATE_DB_URI",
    upgrade="start a worker on it once to bring it up to date",
    use="start a worker",
    privileges=(
        "USAGE ON SCHEMA agent_dispatch, SELECT, INSERT, UPDATE, DELETE ON ALL TABLES and USAGE ON ALL SEQUENCES IN it"
    ),
)
LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S = 5.0, 30.0
PATIENCE_S = 15.0  #: how long is waited on a server that says nothing
TRIES = 5  #: of a transaction that others were in the way of
_LIMITS = limits(LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S)
_IN_THE_WAY = frozenset({"22012", "23505", "40001", "40P01", *NOT_FOLLOWED})  # 22012: see `sql/postgres.sql`
_READ_ONLY = "25006"
Answer = TypeVar("Answer")


class OvertakenError(Exception):
    """What was read without a lock has to be read again, with one."""


class PostgresClient:
    """Belongs to one thread at a time. Everything but `run` raises the fleet's errors."""

    def __init__(self, location: Location, connect: Connect, patience_s: float) -> None:
        self.location = location
        self._connect, self._patience_s = connect, patience_s
        self._wire: Wire | None = None
        self._prepares = True
        self._self: tuple[int, str] | None = None  # the server process at the other end, unless it is a pooler's
        self._former: tuple[int, str] | None = None  # that of a connection that was lost

    def lasting(self, step: Callable[[], Answer]) -> Answer:
        """`step`, which calls `run`; once more on a new connection if it broke. To be repeated must do no harm."""
        try:
            return self._in_turn(step)
        except BrokenError:
            pass
        try:
            return self._in_turn(step)
        except BrokenError as broken:
            raise self.meaning(broken) from broken

    def run(self, statements: Iterable[Statement], rows: int = 0) -> list[Result]:
        """See `Wire.run`. `rows`: how many are written, more or less."""
        try:
            return self.wire.run(statements, self._patience_s + rows / 1000, often=True, binary=True)
        except BrokenError:
            self.lose()
            raise

    @property
    def wire(self) -> Wire:
        """Raises the fleet's errors if there is none to be had."""
        if self._wire is None:
            wire = self.connection()
            try:
                self._settle(wire)
            except (BrokenError, RefusedError) as error:
                wire.close()
                raise self.meaning(error) from error
            self._wire = wire
        return self._wire

    def _settle(self, wire: Wire) -> None:
        """On a connection that is our own, for as long as it lasts."""
        limit_session(wire, _LIMITS, self._patience_s)
        settings = [statement(SQL[block], wire.server_pid) for block in ("plan_by_keys", "keep_alive", "find_self")]
        *_, found = wire.run(settings, self._patience_s, binary=True)
        rows = wire.rows(found)
        if rows and self._former is not None:
            wire.run([statement(SQL["cut_off_former"], *self._former)], self._patience_s)
        self._self, self._former = (rows[0] if rows else None), None

    def connection(self) -> Wire:
        """A new one, to a database that has its tables."""
        wire = SCHEMA.wire_to(self.location, self._connect, prepares=self._prepares)
        try:
            SCHEMA.make_ready(wire, self.location.url)
        except (BrokenError, RefusedError) as error:
            wire.close()
            raise self.meaning(error) from error
        except BaseException:
            wire.close()
            raise
        return wire

    def beginning(self) -> Sequence[Statement]:
        """Of a transaction."""
        return (BEGIN,) if self.wire.limited else (BEGIN, _LIMITS)

    def lose(self) -> None:
        """The connection, and whatever its server process holds: that ends before the next one is used."""
        self._former = self._self
        self.close()

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def meaning(self, error: RefusedError | BrokenError) -> FleetError:
        url = self.location.url
        if isinstance(error, RefusedError) and error.code in _IN_THE_WAY:
            return TERMS.unavailable(f"others changed the same rows of {url} again and again ({error}); try once more")
        return SCHEMA.meaning(error, url)

    def _in_turn(self, step: Callable[[], Answer]) -> Answer:
        """Again, while others are in the way, a number of times."""
        for tries_left in reversed(range(TRIES)):
            try:
                return step()
            except OvertakenError:
                self._roll_back()
                if tries_left == 0:
                    raise
            except RefusedError as refused:
                self._recover(refused)
                if tries_left == 0 or refused.code not in _IN_THE_WAY:
                    raise self.meaning(refused) from refused
            except BaseException:
                self._roll_back()
                raise
        raise AssertionError("the last try raises or returns")

    def _recover(self, refused: RefusedError) -> None:
        self._roll_back()
        if refused.code in NOT_FOLLOWED:
            self._prepares = False
        if refused.code == _READ_ONLY:  # another server may have become the one to write to
            self.close()

    def _roll_back(self) -> None:
        """What is left of a transaction that failed would fail whatever comes next."""
        wire = self._wire
        if wire is not None and wire.in_transaction:
            self.run([ROLLBACK])
