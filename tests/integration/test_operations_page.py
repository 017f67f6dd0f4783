"""What the page on operations says to type does what it says."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dispatch import DispatchService, Intent, Slice, StoreError, UnitWeights
from dispatch.store import open_store
from tests.integration.service_rig import LIMIT_S, Host, Places
from tests.postgres_server import PostgresServer, installations

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
SQL = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DATABASE, SCHEMA, RUNNER, READER, DELETE, CLAIMS, STATES = SQL


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own: roles belong to a whole server."""
    with contextlib.closing(PostgresServer()) as server:
        server.start()
        yield server


def execute(server: PostgresServer, block: str, database: str = "dispatch") -> None:
    for statement in filter(None, map(str.strip, block.split(";"))):
        server.execute(statement, database)


def enqueue(url: str, slice_id: str) -> None:
    with DispatchService(Host(), url, "work", measures=Places(), weights=UnitWeights()) as service:
        service.enqueue(Slice(slice_id), timeout=LIMIT_S)


def ids(url: str) -> list[str]:
    return [row.slice.id for row in open_store(url).peek("work")[0].slices]


def test_the_roles_may_do_what_they_are_for_and_no_more(server: PostgresServer) -> None:
    execute(server, DATABASE, "postgres")
    execute(server, SCHEMA)
    owner, runner, reader = (
        server.url("dispatch", user) for user in ("dispatch", "dispatch_runner", "dispatch_reader")
    )
    enqueue(owner, "a")
    execute(server, RUNNER)
    enqueue(runner, "b")
    execute(server, READER)
    assert ids(reader) == ids(owner) == ["a", "b"]
    with pytest.raises(StoreError, match="GRANT"):
        enqueue(reader, "c")
    for user in ("dispatch_runner", "dispatch_reader"):
        with (
            psycopg.connect(server.url("dispatch", user)) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("CREATE TABLE dispatch.mine (x integer)")


def test_the_first_run_makes_its_tables_and_touches_nothing_else(server: PostgresServer) -> None:
    execute(server, DATABASE, "postgres")
    execute(server, SCHEMA)
    enqueue(server.url("dispatch", "dispatch"), "a")
    others = server.execute(
        "SELECT relname FROM pg_class WHERE relnamespace NOT IN ('dispatch'::regnamespace, 'pg_catalog'::regnamespace,"
        " 'pg_toast'::regnamespace, 'information_schema'::regnamespace)",
        "dispatch",
    )
    assert others == []


def test_what_to_watch(server: PostgresServer) -> None:
    execute(server, DATABASE, "postgres")
    execute(server, SCHEMA)
    url = server.url("dispatch", "dispatch")
    with DispatchService(Host(), url, "work", measures=Places(), weights=UnitWeights()) as service:
        service.enqueue_many([Slice("a"), Slice("b", depends_on=("a",))], timeout=LIMIT_S)
        service.settle(LIMIT_S)
        ((name, epoch, _, seconds_left, batches),) = server.execute(CLAIMS, "dispatch")
        assert (name, epoch) == ("work", 1)
        assert 6 < seconds_left <= 10
        assert batches > 0
    ((*_, seconds_left, _),) = server.execute(CLAIMS, "dispatch")
    assert seconds_left < 0
    assert server.execute(STATES, "dispatch") == [("work", "queued", 1), ("work", "running", 1)]


def test_a_graph_is_deleted_with_all_that_is_kept_of_it(server: PostgresServer) -> None:
    execute(server, DATABASE, "postgres")
    execute(server, SCHEMA)
    url = server.url("dispatch", "dispatch")
    enqueue(url, "a")
    with DispatchService(Host(), url, "shop-37496964", measures=Places(), weights=UnitWeights()) as service:
        service.enqueue(Slice("b"), timeout=LIMIT_S)
        service.declare_intent(Intent("i", "do it", scope="b"), timeout=LIMIT_S)
    server.execute(DELETE, "dispatch")
    tables = [
        name for (name,) in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'dispatch'", "dispatch")
    ]
    for name in {*tables} - {"schema_version"}:
        column = "key" if name == "graphs" else "graph"
        assert {key for (key,) in server.execute(f"SELECT {column} FROM dispatch.{name}", "dispatch")} <= {1}, name
    assert ids(url) == ["a"]


def test_a_backup_brings_all_graphs_back(server: PostgresServer, tmp_path: Path) -> None:
    execute(server, DATABASE, "postgres")
    execute(server, SCHEMA)
    url = server.url("dispatch", "dispatch")
    enqueue(url, "a")
    dump, restore = re.findall(r"^    (pg_(?:dump|restore) .*)$", PAGE, re.MULTILINE)
    typed(server, dump, tmp_path)
    enqueue(url, "b")
    typed(server, restore, tmp_path)
    assert ids(url) == ["a"]
    enqueue(url, "c")
    assert ids(url) == ["a", "c"]


def typed(server: PostgresServer, command: str, folder: Path) -> None:
    program, *words = shlex.split(command)
    place = {"PGHOST": str(server.folder), "PGUSER": "postgres", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [installations()[0] / program, *words], cwd=folder, env=place, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
