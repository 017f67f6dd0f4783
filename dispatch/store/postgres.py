"""Graphs in a PostgreSQL database: one connection, one transaction a batch, and an owner that never waits for long.

Every writing transaction ends with the proof of ownership: it moves the claim's row on to the number of its batch,
which only the claim's owner can, by its newest connection, one batch after the other. So between that and the commit
nobody can take the graph over; and after a connection broke in the middle, the row says whether the batch is there.

A connection that breaks, or on which nothing moves for the store's patience, is given up. The way back is another
thread's (`postgres_return`); until it has succeeded every call says at once what is in the way.

Behind a pooler that hands out connections by transaction nothing depends on the session.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import attrs

from dispatch.errors import DispatchError, OwnershipLostError, StoreUnavailableError
from dispatch.store import codec
from dispatch.store.following import Follower
from dispatch.store.ownership import (
    CLAIM_S,
    Held,
    Wait,
    claim_in_turn,
    hindrance,
    live_claim,
    lost,
    serves_another,
    succession,
    unclaimed,
)
from dispatch.store.port import Changes, Claim, Contents
from dispatch.store.postgres_connection import meaning, meaningful, wire_to
from dispatch.store.postgres_following import PostgresLook
from dispatch.store.postgres_history import PostgresHistory
from dispatch.store.postgres_reading import LOCK_TIMEOUT_S, READING_PATIENCE_S, STATEMENT_TIMEOUT_S, find, snapshot
from dispatch.store.postgres_return import Resumed, Return
from dispatch.store.postgres_rows import Batch, batch_of
from dispatch.store.postgres_schema import SQL, STORE
from dispatch.store.process import Owner, Presence, presence_of, this_process
from dispatch.store.refusals import TERMS
from harness.database.killpoint import killpoint
from harness.database.postgres import Connect, connect, locate
from harness.database.postgres_schema import BEGIN, COMMIT, ROLLBACK, limit_session, limits
from harness.database.postgres_wire import NOT_FOLLOWED, BrokenError, RefusedError, Statement, Wire, statement

PATIENCE_S = 0.5  #: how long the owner waits on a server that says nothing
ROWS_PER_S = 10_000  #: a batch may take a second more for each so many rows

Answer = TypeVar("Answer")

_NOT_OURS, _ALREADY_THERE, _READ_ONLY = "22012", "23505", "25006"  # a proof of ownership fails by dividing by zero


@attrs.frozen
class _Mine:
    """A claim held, the key of its graph, and the incarnation of the connection that serves it."""

    held: Held
    key: int
    incarnation: int = 1

    @property
    def proof(self) -> tuple[int, int, str, int]:
        return self.key, self.held.epoch, self.held.owner.token, self.incarnation


@attrs.frozen
class _Doubt:
    """A batch that was on its way when the connection was lost."""

    number: int
    changes: Changes
    ids: frozenset[str]


class _ConnectionLostError(StoreUnavailableError):
    """The connection was given up in the middle of something; the way back has begun."""


class PostgresStore:
    """A store in the database that `conninfo` names: a URL, or libpq's `key=value` form.

    `clock` gives Unix seconds in place of the database's own; `sleep` and `presence` are what a claim waits with and
    judges by; `connect` makes a connection from a connection string.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        presence: Callable[[Owner], Presence] = presence_of,
        connect: Connect = connect,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._location = locate(conninfo, TERMS)
        self._clock, self._sleep, self._presence, self._connect = clock, sleep, presence, connect
        self._patience_s = patience_s
        self._limits = limits(0.6 * patience_s, STATEMENT_TIMEOUT_S)
        self._prepares = True
        self._wire: Wire | None = None
        self._return: Return | None = None
        self._mine: _Mine | None = None
        self._tried: Owner | None = None  # of the claim that was sent last, whether or not it is known to be there
        self._written = 0  # number of the last batch that is stored
        self._doubt: _Doubt | None = None
        self._stored: set[str] = set()  # ids of slices that are known to be there

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    @property
    def url(self) -> str:
        return self._location.url

    # -- the port ----------------------------------------------------------------------------------------------

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        codec.check_name(graph)
        if self._mine is not None and self._mine.held.graph != graph:
            raise serves_another(self._mine.held.graph)
        try:
            return claim_in_turn(functools.partial(self._try_claim, graph, take_over), self._sleep).claim
        except BaseException:
            if self._mine is None:
                self._close()
            raise

    def load(self) -> Contents:
        mine = self._owned()
        _, contents, held = self._lasting(lambda wire: snapshot(wire, mine.held.graph, self._clock))
        if not mine.held.is_same(held):
            raise self._lost(mine)
        self._stored = {row.slice.id for row in contents.slices}
        return contents

    def write(self, changes: Changes) -> None:
        codec.check(changes)
        self._owned()
        killpoint("postgres.before-write")
        self._lasting(lambda wire: self._write(wire, changes))
        killpoint("postgres.after-write-commit")

    def renew(self) -> None:
        self._owned()
        self._lasting(self._renew)
        killpoint("postgres.after-renewal-commit")

    def release(self) -> None:
        try:
            if self._mine is not None:
                with contextlib.suppress(OwnershipLostError):  # then there is nothing to give up
                    self._lasting(self._give_up)
                    killpoint("postgres.after-release-commit")
        finally:
            self._mine = None
            self._close()

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        codec.check_name(graph)
        with self._reading() as wire:
            now, contents, held = snapshot(wire, graph, self._clock)
            return contents, live_claim(held, now, self._presence)

    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs in the database, sorted, read as `peek` reads."""
        with self._reading() as wire:
            (names,) = wire.run([Statement(SQL["graph_names"])], READING_PATIENCE_S, binary=True)
            return tuple(name for (name,) in wire.rows(names))

    def follow(self, graph: str) -> Follower:
        """`graph`, on a connection that only reads."""
        codec.check_name(graph)
        return Follower(lambda: self._look(graph))

    def history(self) -> PostgresHistory:
        return PostgresHistory(self._location, self._clock, self._presence, self._connect)

    # -- the claim ---------------------------------------------------------------------------------------------

    def _try_claim(self, graph: str, take_over: bool, outlasted: Held | None) -> Held | Wait:
        if self._mine is not None:
            return self._lasting(lambda wire: self._claim(wire, graph, take_over, outlasted))
        try:
            if self._wire is None:
                self._wire = wire_to(self._location, self._connect, prepares=self._prepares)
                STORE.make_ready(self._wire, self.url)
            return self._claim(self._wire, graph, take_over, outlasted)
        except (RefusedError, BrokenError) as error:
            raise meaning(error, self.url) from error

    def _claim(self, wire: Wire, graph: str, take_over: bool, outlasted: Held | None) -> Held | Wait:
        def hindered() -> tuple[Wait | None, Held | None, float, int]:
            now, key, _, held = find(wire, graph, self._clock)
            ours = held if held is not None and held.owner == self._tried and self._mine is None else outlasted
            return (None if take_over else hindrance(held, now, self._presence, ours)), held, now, key

        wait, *_ = hindered()  # refused at once, even while the owner is inside a long write
        if wait is not None:
            return wait
        killpoint("postgres.before-claim")
        begin = [
            BEGIN,
            limits(LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S),
            statement(SQL["add_graph"], graph),
            statement(SQL["lock_graph"], graph),
        ]
        wire.run(begin, READING_PATIENCE_S)
        try:
            wait, held, now, key = hindered()
        except DispatchError:
            wire.run([ROLLBACK], READING_PATIENCE_S)
            raise
        if wait is not None:
            wire.run([ROLLBACK], READING_PATIENCE_S)
            return wait
        return self._take(wire, key, succession(graph, held, this_process(), now))

    def _take(self, wire: Wire, key: int, mine: Held) -> Held:
        owner = mine.owner
        self._tried = owner
        who = (owner.pid, owner.started, owner.boot, owner.pid_namespace)
        wire.run(
            [statement(SQL["take_claim"], key, mine.epoch, owner.token, mine.since, mine.expires_at, *who)],
            READING_PATIENCE_S,
        )
        killpoint("postgres.before-claim-commit")
        wire.run([COMMIT], READING_PATIENCE_S)
        killpoint("postgres.after-claim-commit")
        limit_session(wire, self._limits, READING_PATIENCE_S)
        self._mine, self._written, self._doubt, self._stored = _Mine(mine, key), 0, None, set()
        return mine

    def _renew(self, wire: Wire) -> None:
        def steps() -> Iterator[Statement]:
            now = None if self._clock is None else self._clock()
            yield statement(SQL["move_claim"], *self._owned().proof, now, CLAIM_S)
            killpoint("postgres.before-renewal-commit")

        self._transact(wire, steps, self._patience_s)

    def _give_up(self, wire: Wire) -> None:
        def steps() -> Iterator[Statement]:
            yield statement(SQL["give_up_claim"], *self._owned().proof)
            killpoint("postgres.before-release-commit")

        self._transact(wire, steps, self._patience_s)

    def _owned(self) -> _Mine:
        if self._mine is None:
            raise unclaimed()
        return self._mine

    def _lost(self, mine: _Mine) -> OwnershipLostError:
        self._mine = None
        self._close()
        return lost(mine.held.graph)

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, wire: Wire, changes: Changes) -> None:
        mine, doubt, number = self._owned(), self._doubt, self._written + 1
        if doubt is not None and doubt.number == self._written:  # it was stored before the connection was lost
            self._stored |= doubt.ids
            if doubt.changes == changes:
                self._doubt = None
                return
        batch = batch_of(changes, mine.key, self._stored)
        self._doubt = _Doubt(number, changes, batch.ids)
        self._send(wire, changes, batch, number)
        self._doubt, self._written = None, number
        self._stored |= batch.ids

    def _send(self, wire: Wire, changes: Changes, batch: Batch, number: int) -> None:
        patience_s = self._patience_s + batch.rows / ROWS_PER_S
        try:
            if batch.copied:
                self._copy(wire, batch, patience_s)
            self._transact(wire, lambda: self._steps(batch, number), patience_s, begun=bool(batch.copied))
        except RefusedError as refused:
            if not (batch.copied and refused.code == _ALREADY_THERE):
                raise
            wire.run([ROLLBACK], patience_s)
            self._send(wire, changes, batch_of(changes, self._owned().key, set(), copying=False), number)

    def _steps(self, batch: Batch, number: int) -> Iterator[Statement]:
        yield from batch.statements
        killpoint("postgres.inside-write")
        yield statement(SQL["count_batch"], *self._owned().proof, number)
        killpoint("postgres.before-write-commit")

    def _copy(self, wire: Wire, batch: Batch, patience_s: float) -> None:
        """A former owner learns it here, before it has sent everything."""
        mine = self._owned()
        *_, found = wire.run([*self._begin(wire), statement(SQL["check_claim"], *mine.proof[:3])], patience_s)
        if found.ntuples == 0:
            raise self._lost(mine)
        for sql, pieces in batch.copied:
            wire.copy(sql, pieces, patience_s)

    def _transact(
        self, wire: Wire, steps: Callable[[], Iterable[Statement]], patience_s: float, *, begun: bool = False
    ) -> None:
        """One transaction in one go, or the rest of one that was begun: of that nothing is prepared, as in the middle
        there is no way back from a statement that the server side turns out not to know."""
        begin = () if begun else self._begin(wire)
        try:
            wire.run(itertools.chain(begin, steps(), (COMMIT,)), patience_s, often=not begun)
        except RefusedError as refused:
            if refused.code not in NOT_FOLLOWED:
                raise
            self._prepares = False
            wire.run([ROLLBACK], patience_s)
            wire.run(itertools.chain(self._begin(wire), steps(), (COMMIT,)), patience_s)

    def _begin(self, wire: Wire) -> tuple[Statement, ...]:
        return (BEGIN,) if wire.limited else (BEGIN, self._limits)

    # -- the connection ----------------------------------------------------------------------------------------

    def _lasting(self, step: Callable[[Wire], Answer]) -> Answer:
        """`step`, on a new connection if the present one turns out to be lost and another is there within the patience.

        Raises the port's errors. The outcome of what was lost is known when there is a new connection.
        """
        deadline = time.monotonic() + self._patience_s
        try:
            return self._make_sense(step, self._connected())
        except _ConnectionLostError:
            return self._make_sense(step, self._connected(max(0.0, deadline - time.monotonic())))

    def _make_sense(self, step: Callable[[Wire], Answer], wire: Wire) -> Answer:
        mine = self._owned()
        try:
            return step(wire)
        except BrokenError as broken:
            raise self._lose(mine, broken) from broken
        except RefusedError as refused:
            problem = refused
        except DispatchError:  # such as a row that can't be read; what was begun for it ends here
            self._end_transaction(wire, mine)
            raise
        if problem.code == _NOT_OURS:
            raise self._lost(mine) from problem
        try:
            _, found = wire.run([ROLLBACK, statement(SQL["check_claim"], *mine.proof[:3])], self._patience_s)
        except (BrokenError, RefusedError) as error:
            raise self._lose(mine, error) from error
        if found.ntuples == 0:
            raise self._lost(mine) from problem
        self._doubt = None  # it was refused
        if problem.code == _READ_ONLY:  # another server may have become the one to write to
            raise self._lose(mine, problem) from problem
        raise meaning(problem, self.url) from problem

    def _end_transaction(self, wire: Wire, mine: _Mine) -> None:
        if not wire.in_transaction:
            return
        try:
            wire.run([ROLLBACK], self._patience_s)
        except (BrokenError, RefusedError) as error:
            raise self._lose(mine, error) from error

    def _connected(self, wait_s: float = 0.0) -> Wire:
        """The connection. Raises `StoreUnavailableError` if it is lost and a new one isn't there in so many seconds."""
        if self._wire is not None:
            return self._wire
        mine, back = self._owned(), self._return
        assert back is not None, "a claim has a connection, or a thread that looks for one"
        try:
            resumed = back.take(wait_s)
        except OwnershipLostError:
            raise self._lost(mine) from None
        if resumed is None:
            raise StoreUnavailableError(str(back.problem))
        self._return, self._wire, self._written = None, resumed.wire, resumed.written
        self._mine = attrs.evolve(mine, incarnation=resumed.incarnation)
        return resumed.wire

    def _lose(self, mine: _Mine, error: BrokenError | RefusedError) -> _ConnectionLostError:
        problem = meaning(error, self.url)
        self._close()
        self._return = Return(functools.partial(self._come_back, mine), problem)
        return _ConnectionLostError(str(problem))

    def _come_back(self, mine: _Mine) -> Resumed:
        """In another thread. Raises `OwnershipLostError` if the graph was taken over meanwhile."""
        wire = wire_to(self._location, self._connect, prepares=self._prepares)
        try:
            last = limits(LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S)
            again = statement(SQL["come_back"], *mine.proof[:3])
            _, _, found, _ = wire.run([BEGIN, last, again, COMMIT], 2 * LOCK_TIMEOUT_S)
            limit_session(wire, self._limits, 2 * LOCK_TIMEOUT_S)
        except (BrokenError, RefusedError) as error:
            wire.close()
            raise meaning(error, self.url) from error
        if found.ntuples == 0:
            wire.close()
            raise lost(mine.held.graph)
        return Resumed(wire, *(int(found.get_value(0, column) or b"") for column in (0, 1)))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Wire]:
        """A connection of its own, to a store that is there."""
        wire = wire_to(self._location, self._connect)
        try:
            with meaningful(self.url):
                STORE.check_ready(wire, self.url)
                yield wire
        finally:
            wire.close()

    def _look(self, graph: str) -> PostgresLook:
        wire = wire_to(self._location, self._connect)
        try:
            return PostgresLook(wire, self.url, graph, self._clock, self._presence)
        except BaseException:
            wire.close()
            raise

    def _close(self) -> None:
        wire, self._wire = self._wire, None
        back, self._return = self._return, None
        if wire is not None:
            wire.close()
        if back is not None:
            back.abandon()
