"""What the suite of an authority needs around an adapter: a clock moved by hand, and several clients of one place.

An adapter joins the suite with one entry in `ADAPTERS`: how to open a client on a place that is new for each test.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import psycopg

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.authority.sqlite_file import FILE
from harness.fleet.commands import Claim, Command, Start, Submit
from harness.fleet.ports import Authority, Result
from harness.fleet.work_item import Lease, Submission, WorkItem
from tests.postgres_server import databases

START = 1_000_000.0  #: the clock's first reading, in Unix seconds
TTL_S = 60.0
Clock = Callable[[], float] | None
Opener = Callable[[], Authority]  #: each call gives another client of the same place


@attrs.define
class Rig:
    """A place, and what tests do there most. Unless `by_hand`, the clock is the database's own."""

    opener: Callable[[Clock], Opener] = attrs.field(repr=False)
    now: float = START
    by_hand: bool = True
    _open: Opener | None = None
    _clients: list[Authority] = attrs.Factory(list)

    @property
    def authority(self) -> Authority:
        """The first client."""
        return self._clients[0] if self._clients else self.another()

    @property
    def onlooker(self) -> Authority:
        """The second."""
        return self._clients[1] if len(self._clients) > 1 else self.authority and self.another()

    def another(self) -> Authority:
        self._open = self._open or self.opener((lambda: self.now) if self.by_hand else None)
        self._clients.append(self._open())
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def do(self, *commands: Command) -> tuple[Result, ...]:
        return self.authority.perform(commands)

    def item(self, command: Command) -> WorkItem:
        """What became of it. Raises what it was refused with."""
        (result,) = self.do(command)
        if isinstance(result, Exception):
            raise result
        assert result is not None
        return result

    def submit(self, item_id: str = "a", **fields: object) -> WorkItem:
        return self.item(Submit(submission(item_id, **fields)))

    def claim(self, item_id: str = "a", owner: str = "w1", ttl_s: float = TTL_S) -> Lease:
        return self.item(Claim(item_id, "t", owner, ttl_s)).lease

    def start(self, item_id: str = "a", owner: str = "w1", ttl_s: float = TTL_S) -> Lease:
        return self.item(Start(self.claim(item_id, owner, ttl_s))).lease

    def look(self, item_id: str = "a") -> WorkItem:
        """As another client sees it."""
        return self.onlooker.find([item_id])[item_id]


def submission(item_id: str = "a", **fields: object) -> Submission:
    """Of tenant `t`; each in a session of its own."""
    return attrs.evolve(Submission(item_id, "t", f"session of {item_id}", "chat", "ref"), **fields)


def memory(folder: Path, clock: Clock) -> Opener:
    kept = MemoryWorkItems(clock or time.time)
    return lambda: kept


def sqlite(folder: Path, clock: Clock) -> Opener:
    return lambda: SqliteWorkItems(folder / "state.db", clock=clock, connect=without_fsync)


def without_fsync(path: Path) -> sqlite3.Connection:
    """What survives a power cut is not this suite's question, and hundreds of examples would wait for the disk."""
    connection = FILE.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def postgres(folder: Path, clock: Clock) -> Opener:
    conninfo = emptied_database()
    return lambda: PostgresWorkItems(conninfo, clock=clock)


def emptied_database() -> str:
    """The connection string of one that is shared by all tests of a process: to make one takes ten times as long."""
    conninfo = _shared_database()
    with contextlib.closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            """DO $$ BEGIN EXECUTE (
                SELECT string_agg(format('DELETE FROM agent_dispatch.%I', tablename), ';')
                FROM pg_tables WHERE schemaname = 'agent_dispatch' AND tablename NOT LIKE '%version'
            ); END $$"""
        )
    return conninfo


@functools.cache
def _shared_database() -> str:
    conninfo = databases().new()
    with contextlib.closing(PostgresWorkItems(conninfo)) as authority:
        authority.find(["a"])  # makes the tables
    return conninfo


ADAPTERS: dict[str, Callable[[Path, Clock], Opener]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
}
