"""What the suite of the Transport port needs around an adapter: a place, clients of it, a clock moved by hand.

An adapter joins the suite with one entry in `RIGS`. What it can't promise it declares as an attribute of its rig; the
suite asks the attribute, never which adapter it is.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import psycopg

from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.ports import Delivery, Receipt, Transport
from harness.fleet.transport.kafka import KafkaTransport
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.transport.sqlite_file import QUEUE
from tests import kafka_server
from tests.kafka_queue import plant, queue
from tests.postgres_server import databases

START = 1_000_000.0  #: the clock's first reading, in Unix seconds
VISIBILITY_S = 60.0


@attrs.define
class Clock:
    """In Unix seconds, moved by hand."""

    now: float = START

    def __call__(self) -> float:
        return self.now


class Rig(abc.ABC):
    """A queue of its own for each test."""

    orders_by_priority = True  #: hands out in the order of the contract, not as it was enqueued
    tells_duplicates = True  #: a second delivery with the same job_id is none
    bounds_exactly = True  #: never one more than the limit
    keeps_place = True  #: another client that comes takes away nothing that is out
    has_clock = True  #: goes by the clock of the rig: deliveries are due again, and late, when it says so
    prompt_s = 5.0  #: a delivery that is there is handed out within so many seconds

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.opened: list[Transport] = []

    def client(self) -> Transport:
        """Another client of the queue."""
        self.opened.append(self.open())
        return self.opened[-1]

    def close(self) -> None:
        for transport in self.opened:
            transport.close()

    @abc.abstractmethod
    def open(self) -> Transport: ...

    @abc.abstractmethod
    def plant(self, name: str) -> None:
        """A delivery that is no envelope, written by a stranger."""

    def receive_all(self, transport: Transport, count: int) -> tuple[Delivery, ...]:
        """So many deliveries, in the order in which they came, and at once no more."""
        found: list[Delivery] = []
        while len(found) < count:
            came = transport.receive(count - len(found), self.prompt_s)
            assert came, f"{len(found)} of {count} came"
            found += came
        return tuple(found)


def receipts(deliveries: Sequence[Delivery]) -> list[Receipt]:
    return [delivery.receipt for delivery in deliveries]


class MemoryRig(Rig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._first = MemoryTransport(clock=self.clock, visibility_s=VISIBILITY_S)

    def open(self) -> Transport:
        return self._first.another()

    def plant(self, name: str) -> None:
        self._first.plant(name, b"no envelope: " + name.encode(), "is not JSON in UTF-8")


class SqliteRig(Rig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "queue.db"

    def open(self) -> Transport:
        return SqliteTransport(self._path, clock=self.clock, visibility_s=VISIBILITY_S, connect=without_fsync)

    def plant(self, name: str) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("INSERT INTO agent_dispatch_queue (job_id, priority) VALUES (?, 9)", (name,))


class PostgresRig(Rig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._conninfo = emptied_database()

    def open(self) -> Transport:
        return PostgresTransport(self._conninfo, clock=self.clock, visibility_s=VISIBILITY_S)

    def plant(self, name: str) -> None:
        with contextlib.closing(psycopg.connect(self._conninfo, autocommit=True)) as connection:
            connection.execute(
                "INSERT INTO agent_dispatch.agent_dispatch_queue (job_id, priority) VALUES (%s, 9)", (name,)
            )


class KafkaRig(Rig):
    orders_by_priority = False
    tells_duplicates = False
    bounds_exactly = False
    keeps_place = False
    has_clock = False
    prompt_s = 20.0  # a group takes its time over who comes and goes
    partitions = 10  # with so many, no two sessions of a test of this suite come to be in the same one

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._queue = queue(kafka_server.shared(), self.partitions)

    def open(self) -> Transport:
        return KafkaTransport(self._queue)

    def plant(self, name: str) -> None:
        plant(self._queue, name.encode(), b"no envelope: " + name.encode())


def emptied_database() -> str:
    """The connection string of one that is shared by all tests of a process: to make one takes ten times as long."""
    conninfo = _shared_database()
    with contextlib.closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS agent_dispatch CASCADE")
    return conninfo


@functools.cache
def _shared_database() -> str:
    return databases().new()


def without_fsync(path: Path) -> sqlite3.Connection:
    """What survives a power cut is not this suite's question."""
    connection = QUEUE.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


RIGS: dict[str, Callable[[Path], Rig]] = {
    "memory": MemoryRig,
    "sqlite": SqliteRig,
    "postgres": PostgresRig,
    "kafka": KafkaRig,
}


def turn(job_id: str, session: str | None = None, **fields: object) -> AgentTurnEnvelope:
    """In a session of its own unless said otherwise."""
    given = {"kind": "agent", "payload_ref": "sha256:0", "tenant": "t", "enqueued_at": START, **fields}
    return AgentTurnEnvelope(job_id, session or f"session of {job_id}", **given)  # type: ignore[arg-type]


def names(deliveries: tuple[Delivery, ...]) -> list[str]:
    return [delivery.envelope.job_id if delivery.envelope else "?" for delivery in deliveries]
