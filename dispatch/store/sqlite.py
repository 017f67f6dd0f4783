"""Graphs in a SQLite file: one writer, write-ahead log, every commit on the disk before it returns.

Every writing transaction begins with BEGIN IMMEDIATE. A deferred one that reads first and then finds another writer
fails at once, whatever the busy timeout. The claim is checked inside the transaction that writes, so between check and
commit nobody can take the graph over.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from dispatch.errors import OwnershipLostError, StoreError
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
from dispatch.store.port import Changes, Claim, Contents, SliceRow
from dispatch.store.process import Owner, Presence, presence_of, this_process
from dispatch.store.sqlite_file import connect, connect_to_read, meaning, refuse_after_fork
from dispatch.store.sqlite_following import SqliteLook
from dispatch.store.sqlite_history import SqliteHistory
from dispatch.store.sqlite_rows import SQL, contents, find, held_claim, now_of
from harness.database.killpoint import killpoint
from harness.database.sqlite_file import identity


class SqliteStore:
    """A store in the file `path`, which is made when a graph is first claimed.

    `clock` gives Unix seconds in place of the database's own; `sleep` and `presence` are what a claim waits with and
    judges by; `connect` opens the file for writing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        presence: Callable[[Owner], Presence] = presence_of,
        connect: Callable[[Path], sqlite3.Connection] = connect,
    ) -> None:
        self.path = Path(path).absolute()
        self._clock, self._sleep, self._presence, self._connect = clock, sleep, presence, connect
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what was claimed
        self._mine: Held | None = None
        self._key = 0  # of the claimed graph

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def claim(self, graph: str, *, take_over: bool = False) -> Claim:
        codec.check_name(graph)
        if self._mine is not None and self._mine.graph != graph:
            raise serves_another(self._mine.graph)
        try:
            return claim_in_turn(functools.partial(self._try_claim, graph, take_over), self._sleep).claim
        except BaseException:
            if self._mine is None:
                self._close()
            raise

    def load(self) -> Contents:
        with self._owning("BEGIN") as connection:
            return contents(connection, self._owned().graph)

    def write(self, changes: Changes) -> None:
        codec.check(changes)
        killpoint("sqlite.before-write")
        with self._owning() as connection:
            self._write_slices(connection, changes.slices)
            revised = [row for row in changes.slices if row.slice.id in changes.revised]
            connection.executemany(SQL["rewrite_spec"], (codec.spec_columns(row, self._key) for row in revised))
            killpoint("sqlite.inside-write")
            self._write_rest(connection, changes)
            killpoint("sqlite.before-write-commit")
        killpoint("sqlite.after-write-commit")

    def renew(self) -> None:
        with self._owning() as connection:
            self._move_expiry(connection, self._now(connection) + CLAIM_S)
            killpoint("sqlite.before-renewal-commit")
        killpoint("sqlite.after-renewal-commit")

    def release(self) -> None:
        refuse_after_fork(self.path)
        try:
            if self._mine is not None:
                self._give_up()
        finally:
            self._mine = self._file = None
            self._close()

    def peek(self, graph: str) -> tuple[Contents, Claim | None]:
        codec.check_name(graph)
        connection = connect_to_read(self.path)
        try:
            connection.execute("BEGIN")  # one snapshot for all that follows
            held = held_claim(connection, graph, find(connection, graph)[0])
            return contents(connection, graph), live_claim(held, self._now(connection), self._presence)
        except sqlite3.Error as error:
            raise meaning(error, self.path) from error
        finally:
            connection.close()

    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs in the file, sorted, read as `peek` reads."""
        connection = connect_to_read(self.path)
        try:
            return tuple(name for (name,) in connection.execute(SQL["graph_names"]))
        except sqlite3.Error as error:
            raise meaning(error, self.path) from error
        finally:
            connection.close()

    def follow(self, graph: str) -> Follower:
        """`graph`, on a connection that only reads."""
        codec.check_name(graph)
        return Follower(lambda: SqliteLook(self.path, graph, self._clock, self._presence))

    def history(self) -> SqliteHistory:
        return SqliteHistory(self.path, self._clock, self._presence, self._connect)

    # -- the claim ---------------------------------------------------------------------------------------------

    def _try_claim(self, graph: str, take_over: bool, outlasted: Held | None) -> Held | Wait:
        with self._transaction("BEGIN") as connection:  # refused at once, even while the owner is inside a long write
            wait = None if take_over else self._hindrance(connection, graph, outlasted)
        if wait is not None:
            return wait
        killpoint("sqlite.before-claim")
        with self._transaction() as connection:
            wait = None if take_over else self._hindrance(connection, graph, outlasted)
            if wait is not None:
                return wait
            mine = self._take(connection, graph)
            killpoint("sqlite.before-claim-commit")
        killpoint("sqlite.after-claim-commit")
        self._mine, self._file = mine, identity(self.path)
        return mine

    def _hindrance(self, connection: sqlite3.Connection, graph: str, outlasted: Held | None) -> Wait | None:
        held = held_claim(connection, graph, find(connection, graph)[0])
        return hindrance(held, self._now(connection), self._presence, outlasted)

    def _take(self, connection: sqlite3.Connection, graph: str) -> Held:
        connection.execute(SQL["add_graph"], {"name": graph})
        self._key, _ = find(connection, graph)
        held = held_claim(connection, graph, self._key)
        mine = succession(graph, held, this_process(), self._now(connection))
        times = {"since": mine.since, "expires_at": mine.expires_at}
        connection.execute(
            SQL["take_claim"], {"graph": self._key, "epoch": mine.epoch, **times, **attrs.asdict(mine.owner)}
        )
        return mine

    @contextlib.contextmanager
    def _owning(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """A transaction in which the graph is this object's to the end. Raises `OwnershipLostError` if it isn't."""
        mine = self._owned()
        with self._transaction(begin) as connection:
            if connection.execute(SQL["check_claim"], self._proof(mine)).fetchone() is None:
                self._mine = self._file = None
                raise lost(mine.graph)
            yield connection

    def _move_expiry(self, connection: sqlite3.Connection, expires_at: float) -> None:
        proof = self._proof(self._owned())
        connection.execute(SQL["move_claim"], {**proof, "expires_at": expires_at})

    def _give_up(self) -> None:
        with contextlib.suppress(OwnershipLostError):  # then there is nothing to give up, nor to tidy
            with self._owning() as connection:
                self._move_expiry(connection, 0.0)
                killpoint("sqlite.before-release-commit")
            killpoint("sqlite.after-release-commit")
            self._empty_log()

    def _empty_log(self) -> None:
        """Closing does it too, but not beside a reader."""
        try:
            self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise meaning(error, self.path) from error

    def _owned(self) -> Held:
        if self._mine is None:
            raise unclaimed()
        return self._mine

    def _proof(self, mine: Held) -> dict[str, str | int]:
        return {"graph": self._key, "epoch": mine.epoch, "token": mine.owner.token}

    def _now(self, connection: sqlite3.Connection) -> float:
        return now_of(connection, self._clock)

    # -- rows --------------------------------------------------------------------------------------------------

    def _write_slices(self, connection: sqlite3.Connection, rows: tuple[SliceRow, ...]) -> None:
        """A slice that was launched has most likely been stored before: it is updated, and its spec not even encoded.

        The guess costs nothing but time: if any row was not there, all of them are written in full.
        """
        last = {row.slice.id: row for row in rows}
        launched = [codec.state_columns(row, self._key) for row in last.values() if row.attempt]
        updated = connection.executemany(SQL["update_slice"], launched).rowcount if launched else 0
        whole = {key: row for key, row in last.items() if updated < len(launched) or not row.attempt}
        connection.executemany(SQL["write_slice"], (codec.state_columns(row, self._key) for row in whole.values()))
        declared = (codec.spec_columns(row, self._key) for row in rows if row.slice.id in whole)
        connection.executemany(SQL["write_spec"], declared)

    def _write_rest(self, connection: sqlite3.Connection, changes: Changes) -> None:
        key, graph = self._key, changes.graph
        if graph is not None:
            connection.execute(SQL["write_graph"], {"graph": key, "graph_id": graph.graph_id, "paused": graph.paused})
        connection.executemany(SQL["write_attempt"], (codec.attempt_columns(row, key) for row in changes.attempts))
        connection.executemany(SQL["forget_intent"], ((key, intent_id) for intent_id in changes.forgotten))
        connection.executemany(SQL["write_intent"], (codec.intent_columns(row, key) for row in changes.intents))
        connection.executemany(SQL["write_entry"], (codec.log_columns(row, key) for row in changes.log))
        if changes.keyframe is not None:
            connection.execute(SQL["write_keyframe"], {"graph": key, **attrs.asdict(changes.keyframe)})

    # -- the connection ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Commits at the end. After any error nothing is written, and the next transaction can begin."""
        connection = self._open()
        try:
            connection.execute(begin)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise meaning(error, self.path) from error
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()  # which rolls back too; the next transaction opens the file afresh

    def _open(self) -> sqlite3.Connection:
        refuse_after_fork(self.path)
        if self._file is not None and self._file != identity(self.path):
            raise StoreError(f"{self.path} was removed or replaced while in use; put it back, or start again")
        if self._connection is None:
            self._connection = self._connect(self.path)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
