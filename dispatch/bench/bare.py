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
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dispatch.store.sqlite_file import connect, connect_to_read

Rows = dict[str, list[tuple[Any, ...]]]  #: by table
TABLES = ("slices", "specs")
_BLOCK = b"\0" * 4096


def rows_of(url: str, graph: str) -> Rows:
    """What the product keeps of a graph's slices, fetched with the database's driver alone."""
    if url.startswith("sqlite"):
        with closing(connect_to_read(Path(url.removeprefix("sqlite:///")))) as file:
            ((key,),) = file.execute("SELECT key FROM graphs WHERE name = ?", (graph,))
            return {name: file.execute(f"SELECT * FROM {name} WHERE graph = ?", (key,)).fetchall() for name in TABLES}
    with closing(psycopg.connect(url, autocommit=True)) as server:
        asked = (graph,)
        ((key,),) = server.execute("SELECT key FROM dispatch.graphs WHERE name = %s", asked).fetchall()
        return {name: server.execute(_select(name), (key,)).fetchall() for name in TABLES}


def _select(table: str) -> sql.Composed:
    return sql.SQL("SELECT * FROM dispatch.{} WHERE graph = %s").format(sql.Identifier(table))


class Bare(Protocol):
    """Tables of the floor's own, in the database that the product uses."""

    def fill(self, rows: Rows) -> None:
        """Insert the rows of one graph as fast as the database takes them, in one transaction."""
        ...

    def change_all(self, slice_ids: list[str]) -> None:
        """Update so many rows with as few statements as can be, and commit once."""
        ...

    def written(self) -> int | None:
        """Where the database's log stands, in bytes, whoever wrote them; None if it doesn't say."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class BareSqlite:
    """A file beside the product's, with the product's settings."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._key = 0

    def fill(self, rows: Rows) -> None:
        self._key = rows["slices"][0][0]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO graphs (key, name) VALUES (?, ?)", (self._key, "bare"))
        for name in TABLES:
            marks = ", ".join("?" * len(rows[name][0]))
            self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
        self._connection.execute("COMMIT")

    def change_all(self, slice_ids: list[str]) -> None:
        now = time.time()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "UPDATE slices SET attempt = attempt + 1, started_at = ? WHERE graph = ? AND id = ?",
            [(now, self._key, slice_id) for slice_id in slice_ids],
        )
        self._connection.execute("COMMIT")

    def written(self) -> None:
        return None

    def close(self) -> None:
        self._connection.close()


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

    def fill(self, rows: Rows) -> None:
        self._key = rows["slices"][0][0]
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for name in TABLES:
                with cursor.copy(self._sql(f"COPY {{schema}}.{name} FROM STDIN")) as copy:
                    for row in rows[name]:
                        copy.write_row(row)

    def change_all(self, slice_ids: list[str]) -> None:
        times = [time.time()] * len(slice_ids)
        if len(slice_ids) == 1:
            self._connection.execute(self._one, (times[0], self._key, slice_ids[0]), prepare=True)
        else:
            self._connection.execute(self._many, (slice_ids, times, self._key), prepare=True)

    def written(self) -> int:
        ((position,),) = self._connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
        return int(position)

    def close(self) -> None:
        self._connection.execute(self._sql("DROP SCHEMA {schema} CASCADE"))
        self._connection.close()

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._schema))


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
