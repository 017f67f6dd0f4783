"""Where a round's graph is kept, seen past the product: its rows, its claim, and for a server what comes in its way.

Nothing here is the product's code: the rows are read with plain SQL, from a copy or on a connection of our own.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.crash.evidence import Row, Step
from benchmarks.crash.tap import Tap
from tests.postgres_server import PostgresServer
from tests.tcp_proxy import TcpProxy

STORES = ("sqlite", "postgresql")
CLAIM_S = 10.0  #: how long a claim lasts that isn't renewed
_ROWS = "SELECT id, state, attempt, hold FROM {}slices"
_ALL = ("slices", "specs", "attempts", "intents")
_EXPIRE = "UPDATE {}claims SET expires_at = expires_at - 10 WHERE expires_at > 0"


LOCKED_S = 5.0  #: how long a writer may take


class Kept(Protocol):
    """`url` is what the product is given; `direct` leads to the same graph past everything that may be in the way."""

    kind: str
    url: str
    direct: str

    def rows(self) -> Mapping[str, Row]:
        """By id; empty if there is no graph yet."""
        ...

    def dump(self) -> list[Any]:
        """All that the product keeps, but for the claim."""
        ...

    def epoch(self) -> int:
        """Of the last claim."""
        ...

    def expire(self) -> bool:
        """As if so much time had gone by for the store's clock that the claim has run out; False if that can't be said,
        since its owner is suspended in the middle of a write."""
        ...

    def steps(self) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """The committed transactions that moved the claim, in order, and those that changed rows, if it tells."""
        ...


class SqliteKept:
    """A file. It is never opened where it lies, but by a run: whoever opens a file left by a crash recovers it."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "graphs.db"
        self.url = self.direct = f"sqlite:///{self._file}"

    def rows(self) -> Mapping[str, Row]:
        with self._copy() as connection:
            return _rows(connection.execute(_ROWS.format(""))) if connection is not None else {}

    def dump(self) -> list[Any]:
        with self._copy() as connection:
            assert connection is not None, "there is a graph"
            return [connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in _ALL]

    def epoch(self) -> int:
        """Read while somebody may write: a copy that was torn tells nothing yet."""
        with contextlib.suppress(sqlite3.DatabaseError), self._copy() as connection:
            assert connection is not None, "there is a graph"
            ((epoch,),) = connection.execute("SELECT epoch FROM claims")
            return int(epoch)
        return 0

    def expire(self) -> bool:
        with contextlib.closing(sqlite3.connect(self._file, timeout=LOCKED_S)) as connection, connection:
            try:
                connection.execute(_EXPIRE.format(""))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return False
        return True

    def steps(self) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        return (), ()

    @contextlib.contextmanager
    def _copy(self) -> Iterator[sqlite3.Connection | None]:
        with tempfile.TemporaryDirectory(prefix="crash-look-") as folder:
            for path in self._file.parent.glob(f"{self._file.name}*"):
                if not path.name.endswith("-shm"):
                    shutil.copy(path, folder)
            with contextlib.closing(sqlite3.connect(Path(folder) / self._file.name)) as connection:
                there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'claims'").fetchone()
                yield connection if there else None


class PostgresKept:
    """A database on a server of this round's alone, behind a proxy; a tap on every connection knows commits."""

    kind = "postgresql"

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server, self.database, self.tap = server, database, Tap(server.socket)
        self.proxy = TcpProxy(self.tap.dial)
        self.url = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{database}"
        self.direct = server.url(database)

    def close(self) -> None:
        self.proxy.close()

    def rows(self) -> Mapping[str, Row]:
        with self.server.connection(self.database) as connection:
            if not _is_there(connection, "dispatch.slices"):
                return {}
            return _rows(connection.execute(_ROWS.format("dispatch.").encode()))

    def dump(self) -> list[Any]:
        with self.server.connection(self.database) as connection:
            read = "SELECT t::text FROM dispatch.{} AS t ORDER BY 1"
            return [connection.execute(read.format(table).encode()).fetchall() for table in _ALL]

    def epoch(self) -> int:
        ((epoch,),) = self.server.execute("SELECT epoch FROM dispatch.claims", self.database)
        return int(epoch)

    def expire(self) -> bool:
        self.server.execute(_EXPIRE.format("dispatch."), self.database)
        return True

    def steps(self) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        steps = self.server.execute(
            "SELECT transaction, epoch, incarnation, batch FROM campaign.steps ORDER BY seq", self.database
        )
        writers = self.server.execute("SELECT DISTINCT transaction FROM campaign.writers", self.database)
        return tuple(Step(*step) for step in steps), tuple(transaction for (transaction,) in writers)

    def moved(self) -> int | None:
        """How often the claim has moved: with every batch and every renewal. None while the server is away."""
        try:
            ((count,),) = self.server.execute("SELECT count(*) FROM campaign.steps", self.database)
        except psycopg.OperationalError:
            return None
        return int(count)

    def connected(self) -> int:
        """How many connections the product has."""
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slice-dispatch' AND datname = '{}'"
        ((count,),) = self.server.execute(asked.format(self.database))
        return int(count)

    def refusals(self) -> int:
        """How many writes the server has turned down, by its own log, because who sent them is the owner no more."""
        return self.server.log.count(f"{self.database}|ERROR:  division by zero")


class Servers:
    """PostgreSQL servers, one for each round that is played at a time; started when needed, ended all at once.

    Each has a database that others are made after: what is committed there to the product's tables is noted by
    triggers, which come into being with the tables.
    """

    def __init__(self) -> None:
        self._all: list[PostgresServer] = []
        self._free: queue.SimpleQueue[PostgresServer] = queue.SimpleQueue()

    def close(self) -> None:
        for server in self._all:
            server.close()

    @contextlib.contextmanager
    def kept(self, kind: str, folder: Path, name: str) -> Iterator[Kept]:
        """A new place for a graph, gone afterwards."""
        if kind == "sqlite":
            yield SqliteKept(folder)
            return
        server, database = self._take(), f"crash_{name}"
        server.execute(f"CREATE DATABASE {database} TEMPLATE campaign")
        kept = PostgresKept(server, database)
        try:
            yield kept
        finally:
            kept.close()
            server.execute(f"DROP DATABASE {database} WITH (FORCE)")
            self._free.put(server)

    def _take(self) -> PostgresServer:
        with contextlib.suppress(queue.Empty):
            return self._free.get_nowait()
        server = PostgresServer(None, "log_line_prefix=%d|")
        self._all.append(server)
        server.start()
        server.execute("CREATE DATABASE campaign")
        server.execute(_AUDIT, "campaign")
        return server


def _rows(found: Any) -> dict[str, Row]:
    return {name: Row(state, attempt, bool(hold)) for name, state, attempt, hold in found}


def _is_there(connection: psycopg.Connection[Any], table: str) -> bool:
    ((oid,),) = connection.execute("SELECT to_regclass(%s)", [table])
    return oid is not None


# Between taking its number and the commit a step's transaction holds the lock of the claim's row: the numbers of one
# graph are in the order of its commits.
_AUDIT = """
CREATE SCHEMA campaign;
CREATE TABLE campaign.steps (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction BIGINT NOT NULL, epoch BIGINT NOT NULL, incarnation BIGINT NOT NULL, batch BIGINT NOT NULL
);
CREATE TABLE campaign.writers (transaction BIGINT NOT NULL);
CREATE FUNCTION campaign.note_step() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO campaign.steps (transaction, epoch, incarnation, batch)
    VALUES (txid_current(), NEW.epoch, NEW.incarnation, NEW.written);
    RETURN NULL;
END $$;
CREATE FUNCTION campaign.note_writer() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO campaign.writers VALUES (txid_current());
    RETURN NULL;
END $$;
CREATE FUNCTION campaign.watch() RETURNS EVENT_TRIGGER LANGUAGE plpgsql AS $$
DECLARE made RECORD;
BEGIN
    FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
        IF made.object_identity = 'dispatch.claims' THEN
            EXECUTE 'CREATE OR REPLACE TRIGGER campaign AFTER INSERT OR UPDATE ON dispatch.claims
                FOR EACH ROW EXECUTE FUNCTION campaign.note_step()';
        ELSIF made.object_identity IN ('dispatch.slices', 'dispatch.specs', 'dispatch.attempts', 'dispatch.intents')
        THEN
            EXECUTE format('CREATE OR REPLACE TRIGGER campaign AFTER INSERT OR UPDATE OR DELETE ON %s
                FOR EACH STATEMENT EXECUTE FUNCTION campaign.note_writer()', made.object_identity);
        END IF;
    END LOOP;
END $$;
CREATE EVENT TRIGGER campaign ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION campaign.watch()
"""
