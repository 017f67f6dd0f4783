"""Where the campaign is played: an authority and a transport of each kind, on real servers, and what befalls them."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.fencing.checker import Row
from benchmarks.fencing.chore import SESSION
from tests.kafka_server import KafkaServer
from tests.postgres_server import PostgresServer
from tests.tcp_proxy import TcpProxy

TTL_S, RENEW_S = 1.5, 0.4
PARTITIONS = 8
SESSION_S = 1.5  #: of a Kafka group's member: a user's is six seconds at least, which is what brokers take by default
LEASES = {"AGENT_DISPATCH_CLAIM_TTL_S": str(TTL_S), "AGENT_DISPATCH_RENEW_INTERVAL_S": str(RENEW_S)}


class Grounds(Protocol):
    """One kind of fleet. `environ` names it to workers, `direct` to whoever is to be left in peace."""

    name: str
    pause_s: tuple[float, float]  #: between two faults, at least and at most
    suspension_s: tuple[float, float]  #: after so long, at least and at most, a turn is another worker's
    environ: dict[str, str]
    direct: dict[str, str]

    def rows(self) -> dict[str, Row]:
        """What the authority holds."""
        ...

    def faults(self) -> tuple[str, ...]:
        """Besides what befalls workers."""
        ...

    def strike(self, fault: str) -> None: ...

    def close(self) -> None: ...


_ITEMS = "SELECT id, state FROM {}items"
_OUTCOMES = "SELECT id, o.lease_epoch, ended FROM {}outcomes AS o JOIN {}items AS i ON i.seq = o.item ORDER BY o.number"


def _rows(items: list[tuple[Any, ...]], outcomes: list[tuple[Any, ...]]) -> dict[str, Row]:
    by_item: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, epoch, ended in outcomes:
        by_item[name].append((epoch, ended))
    return {name: Row(state, tuple(by_item[name])) for name, state in items}


class SqliteGrounds:
    """Two files."""

    name = "sqlite"
    pause_s = (0.1, 0.6)
    suspension_s = (1.2 * TTL_S, 2.5 * TTL_S)

    def __init__(self, folder: Path, max_depth: int) -> None:
        self._state = folder / "state.db"
        self.environ = LEASES | {
            "TASK_QUEUE_BACKEND": "sqlite",
            "STATE_DB_URI": f"sqlite:///{self._state}",
            "AGENT_DISPATCH_MAX_DEPTH": str(max_depth),
        }
        self.direct = self.environ

    def rows(self) -> dict[str, Row]:
        with contextlib.closing(sqlite3.connect(self._state)) as file:
            return _rows(file.execute(_ITEMS.format("")).fetchall(), file.execute(_OUTCOMES.format("", "")).fetchall())

    def faults(self) -> tuple[str, ...]:
        return ()

    def strike(self, fault: str) -> None:
        raise AssertionError(fault)

    def close(self) -> None:
        """The files go with their folder."""


class PostgresGrounds:
    """A server of the campaign's own, which workers reach through a proxy. It keeps the authority, and the queue if
    nothing else does."""

    name = "postgres"
    pause_s = (0.1, 0.6)
    suspension_s = (1.2 * TTL_S, 2.5 * TTL_S)

    def __init__(self, folder: Path, max_depth: int) -> None:
        self._server = PostgresServer()
        self._server.start()
        self._proxy = TcpProxy(self._dial)
        through = f"postgresql://postgres@127.0.0.1:{self._proxy.port}/postgres"
        common = LEASES | {"TASK_QUEUE_BACKEND": "postgres", "AGENT_DISPATCH_MAX_DEPTH": str(max_depth)}
        self.environ = common | {"STATE_DB_URI": through, "TASK_QUEUE_URI": through}
        self.direct = common | {"STATE_DB_URI": self._server.url(), "TASK_QUEUE_URI": self._server.url()}

    def _dial(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self._server.socket))
        return client

    def rows(self) -> dict[str, Row]:
        with contextlib.closing(psycopg.connect(self._server.url())) as server:
            schema = "agent_dispatch."
            items = server.execute(_ITEMS.format(schema).encode()).fetchall()
            return _rows(items, server.execute(_OUTCOMES.format(schema, schema).encode()).fetchall())

    def faults(self) -> tuple[str, ...]:
        return ("restart", "reset")

    def strike(self, fault: str) -> None:
        if fault == "restart":
            self._server.crash()
            self._server.start()
        else:
            for link in self._proxy.links[-8:]:
                link.reset()

    def close(self) -> None:
        self._proxy.close()
        self._server.close()


class KafkaGrounds(PostgresGrounds):
    """The queue on a broker of the campaign's own, the authority in PostgreSQL."""

    name = "kafka"
    pause_s = (0.3, 1.5)  # the group takes its time to miss a member that was killed, and shares out anew
    suspension_s = (2.0 * SESSION_S, 4.0 * SESSION_S)  # the group has missed it, and the next one has the partition

    def __init__(self, folder: Path, max_depth: int, broker: KafkaServer | None = None) -> None:
        super().__init__(folder, max_depth)
        self._broker = broker or KafkaServer()
        self._broker.start()
        kafka = {
            "TASK_QUEUE_BACKEND": "kafka",
            "KAFKA_BOOTSTRAP_SERVERS": self._broker.bootstrap,
            "AGENT_TURNS_PARTITIONS": str(PARTITIONS),
        }
        self.environ |= kafka | {SESSION: str(SESSION_S)}
        self.direct |= kafka

    def faults(self) -> tuple[str, ...]:
        return (*super().faults(), "broker")

    def strike(self, fault: str) -> None:
        if fault == "broker":
            self._broker.crash()
            self._broker.start()
        else:
            super().strike(fault)

    def close(self) -> None:
        self._broker.close()
        super().close()


GROUNDS: dict[str, Callable[[Path, int], Grounds]] = {
    "sqlite": SqliteGrounds,
    "postgres": PostgresGrounds,
    "kafka": KafkaGrounds,
}
KINDS = tuple(GROUNDS)


@contextlib.contextmanager
def grounds_of(kind: str, folder: Path, max_depth: int) -> Iterator[Grounds]:
    grounds = GROUNDS[kind](folder, max_depth)
    try:
        yield grounds
    finally:
        grounds.close()
