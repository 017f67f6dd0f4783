"""A pump's look costs the same however much waits in a queue."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.postgres_client import SQL
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.authority.sqlite_rows import SQL as SQLITE_SQL
from harness.fleet.commands import Submit
from harness.fleet.ports import Authority
from harness.fleet.work_item import Submission
from tests.postgres_server import databases

WAITING = 300
NOW, HANDED_S = 1000.0, 30.0


def fill(authority: Authority) -> None:
    """Turns that were submitted just now, whose submitters see to their delivery."""
    authority.perform([Submit(Submission(f"a{n}", "t", f"s{n}", "k")) for n in range(WAITING)])
    assert authority.undelivered(10, HANDED_S) == ()


def test_on_sqlite(tmp_path: Path) -> None:
    path, steps = tmp_path / "state.db", 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with closing(SqliteWorkItems(path, clock=lambda: NOW)) as authority:
        fill(authority)
        with authority.using() as connection:
            connection.set_progress_handler(count, 1)
            assert connection.execute(SQLITE_SQL["lock_undelivered"], (NOW, HANDED_S, 10)).fetchall() == []
            connection.set_progress_handler(None, 1)
    assert 0 < steps < WAITING / 3


def test_on_postgres() -> None:
    conninfo = databases().new()
    with closing(PostgresWorkItems(conninfo, clock=lambda: NOW)) as authority:
        fill(authority)
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(SQL["plan_by_keys"].replace("$1", str(server.info.backend_pid)).encode())
        asked = SQL["lock_undelivered"]
        for mark, value in (("$1", NOW), ("$2", HANDED_S), ("$3", 10)):
            asked = asked.replace(mark, str(value))
        ((found,),) = server.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}".encode()).fetchall()
    plans = json.loads(found) if isinstance(found, str) else found
    assert sum(removed(plan["Plan"]) for plan in plans) == 0


def removed(plan: dict[str, Any]) -> int:
    """Rows that were looked at in vain."""
    return int(plan.get("Rows Removed by Filter", 0)) + sum(removed(each) for each in plan.get("Plans", ()))
