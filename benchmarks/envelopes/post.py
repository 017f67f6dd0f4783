"""How a stranger puts things into a queue: past the fleet, as any client of the server could; and how it is read.

Each kind of queue has a *post*. What a delivery is known by in the end, the digest of its bytes, is told by whoever
planted it, from what the server has of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import attrs
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.envelopes.poison import BYTES, POSTGRES_ROWS, SQLITE_ROWS, Row, RowKind

LIMIT_S = 60.0
COLUMNS = ("job_id", "session_id", "kind", "payload_ref", "tenant", "priority", "deadline", "attempt", "enqueued_at")


@attrs.frozen
class Stray:
    """A delivery to be planted: an envelope, of which `fields` are the fields in the order of `COLUMNS`; or poison of
    some `kind`, of which `fields` are what its post made."""

    kind: str
    fields: tuple[Any, ...]
    is_letter: bool = False


class Post(Protocol):
    """Of one queue."""

    carries_copies: bool  #: takes a delivery of a job that has one already

    def poison(self, rng: Random, number: int) -> Stray: ...

    def plant(self, strays: Sequence[Stray]) -> list[str]:
        """What each is known by; nothing for those that there was no place for, since their job has a delivery."""
        ...

    def depth(self) -> int:
        """Deliveries that are left, counted here."""
        ...


def letter_digest(fields: Sequence[Any]) -> str:
    """Of an envelope, in the form in which it travels."""
    body = {"v": 1} | dict(zip(COLUMNS, fields, strict=True))
    return hashlib.sha256(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def row_digest(columns: Sequence[Any]) -> str:
    """Of a row that is none: of its columns as JSON, by name."""
    body = dict(zip(COLUMNS, columns, strict=True))
    return hashlib.sha256(json.dumps(body, default=repr, sort_keys=True).encode()).hexdigest()


class _RowPost:
    """`kinds` are those of its poison."""

    carries_copies = False
    kinds: Mapping[str, RowKind]

    def poison(self, rng: Random, number: int) -> Stray:
        kind = rng.choice(list(self.kinds))
        return Stray(kind, _columns(self.kinds[kind](rng, number)))

    @staticmethod
    def _known_by(stray: Stray, planted: Sequence[Any] | None) -> str:
        if planted is None:
            return ""
        return letter_digest(stray.fields) if stray.is_letter else row_digest(planted)


def _columns(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)


class SqlitePost(_RowPost):
    kinds = SQLITE_ROWS
    _INSERT = (
        f"INSERT INTO agent_dispatch_queue ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
        " ON CONFLICT DO NOTHING"
    )
    _FIND = f"SELECT {', '.join(COLUMNS)} FROM agent_dispatch_queue WHERE place = ?"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = Path(environ["STATE_DB_URI"].removeprefix("sqlite:///"))

    def plant(self, strays: Sequence[Stray]) -> list[str]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=LIMIT_S)) as file, file:
            file.execute("BEGIN IMMEDIATE")
            return [self._known_by(stray, self._insert(file, stray)) for stray in strays]

    def _insert(self, file: sqlite3.Connection, stray: Stray) -> Sequence[Any] | None:
        """The row as it is kept; None if there was no place for it."""
        inserted = file.execute(self._INSERT, stray.fields)
        if inserted.rowcount < 1:
            return None
        row: Sequence[Any] = file.execute(self._FIND, (inserted.lastrowid,)).fetchone()
        return row

    def depth(self) -> int:
        with contextlib.closing(sqlite3.connect(self._path, timeout=LIMIT_S)) as file:
            return int(file.execute("SELECT count(*) FROM agent_dispatch_queue").fetchone()[0])


class PostgresPost(_RowPost):
    kinds = POSTGRES_ROWS
    _INSERT = (
        f"INSERT INTO agent_dispatch.agent_dispatch_queue ({', '.join(COLUMNS)})"
        f" VALUES ({', '.join(['%s'] * len(COLUMNS))}) ON CONFLICT DO NOTHING RETURNING {', '.join(COLUMNS)}"
    )

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._uri = environ["TASK_QUEUE_URI"]

    def plant(self, strays: Sequence[Stray]) -> list[str]:
        with contextlib.closing(psycopg.connect(self._uri)) as server, server:
            insert = self._INSERT.encode()
            return [self._known_by(stray, server.execute(insert, stray.fields).fetchone()) for stray in strays]

    def depth(self) -> int:
        with contextlib.closing(psycopg.connect(self._uri)) as server:
            found = server.execute("SELECT count(*) FROM agent_dispatch.agent_dispatch_queue").fetchone()
            assert found is not None
            return int(found[0])


class KafkaPost:
    """Keys are those of sessions with good turns, so that poison comes to lie before and behind them."""

    carries_copies = True
    TOPIC, GROUP = "agent_turns", "agent-dispatch"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._servers = environ["KAFKA_BOOTSTRAP_SERVERS"]
        self._keys = Random(0)

    def poison(self, rng: Random, number: int) -> Stray:
        kind = rng.choice(list(BYTES))
        return Stray(kind, (BYTES[kind](rng, number),))

    def plant(self, strays: Sequence[Stray]) -> list[str]:
        producer = Producer({"bootstrap.servers": self._servers, "partitioner": "murmur2_random", "log_level": 0})
        refused: list[object] = []
        bodies = [self._body(stray) for stray in strays]
        for body in bodies:
            key = self._keys.choice((None, b"", b"\xff\x00", *(f"session-{number}" for number in range(8))))
            value = None if body == b"" and self._keys.random() < 0.5 else body  # a key without a value is as empty
            producer.produce(self.TOPIC, value, key, on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(LIMIT_S) == 0
        assert refused == [None] * len(strays)
        return [hashlib.sha256(body).hexdigest() for body in bodies]

    def depth(self) -> int:
        """From what the group has committed to the end, over all partitions."""
        reader = Consumer({"bootstrap.servers": self._servers, "group.id": self.GROUP, "enable.auto.commit": False})
        try:
            topic = reader.list_topics(self.TOPIC, timeout=LIMIT_S).topics[self.TOPIC]
            places = [TopicPartition(self.TOPIC, number) for number in topic.partitions]
            return sum(self._left(reader, place) for place in reader.committed(places, timeout=LIMIT_S))
        finally:
            reader.close()

    @staticmethod
    def _left(reader: Consumer, place: TopicPartition) -> int:
        first, end = reader.get_watermark_offsets(place, timeout=LIMIT_S)
        return int(end - max(first, place.offset))

    @staticmethod
    def _body(stray: Stray) -> bytes:
        if not stray.is_letter:
            return bytes(stray.fields[0])
        body = {"v": 1} | dict(zip(COLUMNS, stray.fields, strict=True))
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


POSTS: Mapping[str, Callable[[Mapping[str, str]], Post]] = {
    "sqlite": SqlitePost,
    "postgres": PostgresPost,
    "kafka": KafkaPost,
}
