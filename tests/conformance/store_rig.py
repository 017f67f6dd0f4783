"""What the suite of the store port needs around an adapter: a clock moved by hand, processes that live or die by word.

An adapter joins the suite with one entry in `ADAPTERS`: how to open a handle on a place that is new for each test.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import attrs
import psycopg

from dispatch.intent import Intent
from dispatch.slice import Slice, SliceState
from dispatch.store import AttemptRow, IntentRow, MemoryStore, SliceRow, SqliteStore, Store
from dispatch.store.postgres import PostgresStore
from dispatch.store.process import Owner, Presence
from dispatch.store.sqlite_file import connect
from tests.postgres_server import databases

START = 1_000_000.0  #: the clock's first reading, in Unix seconds


@attrs.define
class World:
    """The surroundings of a test. Every process is `presence`; `while_asleep` runs in each sleep."""

    presence: Presence = Presence.ALIVE
    now: float = START
    slept: list[float] = attrs.Factory(list)
    while_asleep: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a sleep of no length would never end"
        self.slept.append(seconds)
        self.now += seconds
        self.while_asleep()

    def presence_of(self, owner: Owner) -> Presence:
        return self.presence


Opener = Callable[[], Store]  #: each call gives another handle on the same store


def memory(world: World, folder: Path) -> Opener:
    return MemoryStore(clock=world.clock, sleep=world.sleep, presence=world.presence_of).another


def sqlite(world: World, folder: Path) -> Opener:
    return lambda: SqliteStore(
        folder / "graphs.db", clock=world.clock, sleep=world.sleep, presence=world.presence_of, connect=without_fsync
    )


def without_fsync(path: Path) -> sqlite3.Connection:
    """What survives a power cut is not this suite's question, and hundreds of examples would wait for the disk."""
    connection = connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def postgres(world: World, folder: Path) -> Opener:
    conninfo = emptied_database()
    return lambda: PostgresStore(conninfo, clock=world.clock, sleep=world.sleep, presence=world.presence_of)


def emptied_database() -> str:
    """The connection string of one that is shared by all tests of a process: to make one takes ten times as long."""
    conninfo = _shared_database()
    with contextlib.closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        connection.execute("DROP SCHEMA IF EXISTS dispatch CASCADE")
    return conninfo


@functools.cache
def _shared_database() -> str:
    return databases().new()


ADAPTERS: dict[str, Callable[[World, Path], Opener]] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}


def slice_row(slice_id: str, seq: int = 1, **fields: object) -> SliceRow:
    row = SliceRow(Slice(slice_id), seq, SliceState.QUEUED)
    return attrs.evolve(row, **fields)


def attempt_row(slice_id: str, attempt: int = 1, **fields: object) -> AttemptRow:
    return attrs.evolve(AttemptRow(slice_id, attempt, f"dispatch/{slice_id}", 5.0), **fields)


def intent_row(intent_id: str, seq: int = 1, **fields: object) -> IntentRow:
    return attrs.evolve(IntentRow(Intent(intent_id, "do it"), seq), **fields)
