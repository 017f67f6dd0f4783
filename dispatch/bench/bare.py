"""The floor under a store: the same rows in the same tables, moved by a plain loop, and nothing around it.

The tables are the product's, columns and indexes alike, and so are the rows, taken from where the product has written
them. No claim, no refusals, no history, nobody who waits for a reply. What the product takes beyond this is what its
promises cost.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dispatch.store.sqlite_file import connect, connect_to_read

Rows = Sequence[tuple[Any, ...]]
TABLES = ("slices", "specs")
_BLOCK = b"\0" * 4096


class Bare(Protocol):
    """Tables of the floor's own, in the database that the product uses."""

    def fill(self, graph: str) -> float:
        """Insert what the product keeps of `graph` as fast as the database takes it, in one transaction.

        Returns the seconds that took, less those for reading it at the product's place.
        """
        ...

    def change(self, slice_id: str) -> None:
        """Update one row and commit."""
        ...

    def change_all(self, slice_ids: list[str]) -> None:
        """Update so many rows with as few statements as can be, and commit once."""
        ...

    def read(self) -> int:
        """Fetch all rows; returns how many."""
        ...

    def written(self) -> int | None:
        """Where the database's log stands, in bytes, whoever wrote them; None if it doesn't say."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class BareSqlite:
    """A file beside the product's, with the product's settings."""

    def __init__(self, path: Path, product: Path) -> None:
        self._connection, self._product = connect(path), product

    def fill(self, graph: str) -> float:
        source = connect_to_read(self._product)
        try:
            ((key, *row),) = source.execute("SELECT * FROM graphs WHERE name = ?", (graph,))
            rows = {name: source.execute(f"SELECT * FROM {name} WHERE graph = ?", (key,)).fetchall() for name in TABLES}
        finally:
            source.close()
        began = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"INSERT INTO graphs VALUES ({_marks((key, *row))})", (key, *row))
        for name in TABLES:
            self._connection.executemany(f"INSERT INTO {name} VALUES ({_marks(rows[name][0])})", rows[name])
        self._connection.execute("COMMIT")
        return time.perf_counter() - began

    def change(self, slice_id: str) -> None:
        self.change_all([slice_id])

    def change_all(self, slice_ids: list[str]) -> None:
        now = time.time()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "UPDATE slices SET attempt = attempt + 1, started_at = ? WHERE graph = 1 AND id = ?",
            [(now, slice_id) for slice_id in slice_ids],
        )
        self._connection.execute("COMMIT")

    def read(self) -> int:
        return sum(len(self._connection.execute(f"SELECT * FROM {name}").fetchall()) for name in TABLES)

    def written(self) -> None:
        return None

    def close(self) -> None:
        self._connection.close()


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))


class BarePostgres:
    """Tables in a schema of their own, gone again after `close`. The product's must be there."""

    def __init__(self, conninfo: str, schema: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._schema = schema
        self._connection.execute(self._sql("CREATE SCHEMA {schema}"))
        for name in TABLES:
            self._connection.execute(
                self._sql(f"CREATE TABLE {{schema}}.{name} (LIKE dispatch.{name} INCLUDING ALL) WITH (fillfactor = 70)")
            )
        self._one = self._sql(
            "UPDATE {schema}.slices SET attempt = attempt + 1, started_at = %s WHERE graph = %s AND id = %s"
        )
        self._many = self._sql(
            "UPDATE {schema}.slices AS old SET attempt = attempt + 1, started_at = new.at"
            " FROM unnest(%s::text[], %s::float8[]) AS new (id, at) WHERE old.graph = %s AND old.id = new.id"
        )
        self._key = 0

    def fill(self, graph: str) -> float:
        (self._key,) = self._row("SELECT key FROM dispatch.graphs WHERE name = %s", graph)
        rows = {
            name: self._connection.execute(f"SELECT * FROM dispatch.{name} WHERE graph = %s", (self._key,)).fetchall()
            for name in TABLES
        }
        began = time.perf_counter()
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for name in TABLES:
                with cursor.copy(self._sql(f"COPY {{schema}}.{name} FROM STDIN")) as copy:
                    for row in rows[name]:
                        copy.write_row(row)
        return time.perf_counter() - began

    def change(self, slice_id: str) -> None:
        self._connection.execute(self._one, (time.time(), self._key, slice_id), prepare=True)

    def change_all(self, slice_ids: list[str]) -> None:
        times = [time.time()] * len(slice_ids)
        self._connection.execute(self._many, (slice_ids, times, self._key), prepare=True)

    def read(self) -> int:
        return sum(
            len(self._connection.execute(self._sql(f"SELECT * FROM {{schema}}.{name}")).fetchall()) for name in TABLES
        )

    def written(self) -> int:
        (position,) = self._row("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        return int(position)

    def close(self) -> None:
        self._connection.execute(self._sql("DROP SCHEMA {schema} CASCADE"))
        self._connection.close()

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._schema))

    def _row(self, text: str, *values: Any) -> tuple[Any, ...]:
        row = self._connection.execute(text, values).fetchone()
        assert row is not None, "the product has written it"
        return row


def pgbench_us(conninfo: str, seconds: int = 1) -> float | None:
    """What a transaction of `pgbench -N`, one client, prepared, costs on that server; None if there is no pgbench."""
    program = shutil.which("pgbench")
    if program is None:
        return None
    parameters = conninfo_to_dict(conninfo)
    password = parameters.pop("password", None)
    schema = f"dispatch_bench_{secrets.token_hex(4)}"
    env = os.environ | {"PGOPTIONS": f"-c search_path={schema}"} | ({"PGPASSWORD": str(password)} if password else {})
    database = make_conninfo("", **parameters)
    with closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        name = sql.Identifier(schema)
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
        try:
            for words in (("-i", "-q"), ("-N", "-n", "-c", "1", "-M", "prepared", "-T", str(seconds))):
                done = subprocess.run([program, *words, database], env=env, capture_output=True, text=True, check=True)
        finally:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(name))
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return 1e6 / float(found[1])


def sync_us(folder: Path, times: int = 200) -> float:
    """What one synced write of 4 KB costs on the disk under `folder`, in microseconds: the median."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(times):
            began = time.perf_counter()
            os.pwrite(file.fileno(), _BLOCK, 0)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken) * 1e6
