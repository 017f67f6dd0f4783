"""`history` and `replay` as they are typed."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from dispatch.store.sqlite_file import APPLICATION_ID
from harness.database.queries import migrations
from tests.e2e.desk import Desk

PLAN = """
cap = 1
[slices.first]
command = ["sh", "-c", "echo '\\u001b[2Jno luck'; exit 1"]
max_attempts = 1
[slices.second]
command = ["sh", "-c", "echo done > b.txt"]
[slices.third]
command = ["true"]
"""


@pytest.fixture
def ran(desk: Desk) -> Desk:
    assert desk.run("run", desk.plan(PLAN)).returncode == 1
    return desk


def database(desk: Desk) -> Path:
    return desk.state / "slice-dispatch" / "graphs.db"


def entry_numbers(desk: Desk, *options: str) -> list[int]:
    return [entry["entry"] for entry in desk.document("history", *options)["entries"]]


def test_a_run_can_be_told_and_played_again(ran: Desk) -> None:
    told = ran.ask("history").stdout.splitlines()
    assert "took the graph up (epoch 1, learned weights)" in told[0]
    assert any("enqueued first, second, third" in line for line in told)
    assert any("first@1 starts, in place 1 of 1" in line for line in told)
    ends = [line for line in told if "reports" in line]
    assert "first@1 reports closed" in ends[0]
    assert "third@1 reports merged" in ends[-1]
    replayed = ran.ask("replay")
    assert replayed.returncode == 0
    assert replayed.stdout.endswith(": all the same\n")
    assert "3 decisions from 20" in replayed.stdout
    ran.check_clean()


def test_the_operators_commands_are_part_of_it(ran: Desk) -> None:
    for words in (["retry", "first"], ["hold", "first", "--reason", "later"], ["cancel", "first"]):
        assert ran.ask(*words).returncode == 0
    told = ran.ask("history").stdout
    assert "retry first" in told
    assert "hold first: later" in told
    assert "epoch 4" in told
    assert ran.ask("replay").returncode == 0


def test_a_slices_story_has_its_attempts_and_what_was_about_it(ran: Desk) -> None:
    told = ran.ask("history", "first").stdout
    assert "attempt 1: closed after" in told
    assert "branch dispatch/first/1" in told
    assert "checkpoint" in told
    assert "\x1b" not in told
    assert "second@1" not in told
    story = ran.document("history", "first")
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["closed"]
    assert story["attempts"][0]["checkpoint"]
    assert {entry["kind"] for entry in story["entries"]} >= {"enqueue", "report"}


def test_the_graph_as_it_was(ran: Desk) -> None:
    started = next(entry for entry in ran.document("history")["entries"] if entry["decisions"]["starts"])
    then = ran.document("history", "--at", str(started["entry"]))
    assert (then["entry"], then["at"]) == (started["entry"], started["at"])
    assert {view["id"]: view["state"] for view in then["slices"]} == {
        "first": "running",
        "second": "queued",
        "third": "queued",
    }
    now = ran.document("history", "--at", "0s")
    assert now["states"] == ran.document("list")["states"]
    shown = ran.ask("history", "--at", str(started["entry"])).stdout.splitlines()
    assert shown[0].startswith(f"as it was after entry {started['entry']}, 20")
    assert any("running   first" in line for line in shown)


def test_a_part_of_it(ran: Desk) -> None:
    every = entry_numbers(ran)
    assert every == list(range(1, len(every) + 1))
    assert entry_numbers(ran, "--limit", "2") == every[-2:]
    assert entry_numbers(ran, "--limit", "0") == every
    assert entry_numbers(ran, "--since", "1h") == every
    assert entry_numbers(ran, "--since", "2101-01-01") == []
    assert entry_numbers(ran, "--until", "1h") == []
    assert ran.ask("history", "--limit", "2").stdout.startswith(f"{len(every) - 2} earlier entries not shown")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "frist"], "did you mean 'first'?"),
        (["history", "--since", "noon"], "'noon' is no moment: write 2026-11-30"),
        (["history", "--at", "2001-01-01"], "had not begun then"),
        (["history", "first", "--at", "3"], "leave the slice, --since and --until out"),
        (["history", "--limit", "-1"], "Invalid value for '--limit'"),
        (["replay", "--graph", "absent"], "there is no graph 'absent'"),
        (["history", "--store", "memory:"], "ends with the process"),
    ],
)
def test_a_mistake_is_one_line_that_says_the_way_out(ran: Desk, words: list[str], said: str) -> None:
    done = ran.ask(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_log_that_was_tampered_with_is_told(ran: Desk) -> None:
    with closing(sqlite3.connect(database(ran))) as connection, connection:
        (seq,) = connection.execute("SELECT min(seq) FROM log WHERE decisions LIKE '%starts%'").fetchone()
        connection.execute("UPDATE log SET decisions = '{}' WHERE seq = ?", (seq,))
    done = ran.ask("replay")
    assert done.returncode == 1
    assert f"then a difference:  entry {seq}" in done.stdout
    assert "comes out: " in done.stdout
    assert "first@1" in done.stdout
    found = json.loads(ran.ask("replay", "--json").stdout)
    assert found["same"] is False
    assert found["difference"]["entry"] == seq
    assert found["difference"]["stored"] == "{}"


def test_both_work_while_a_run_owns_the_graph(desk: Desk) -> None:
    os.mkfifo(desk.mark("fifo"))
    plan = desk.plan(f"[slices.only]\ncommand = ['sh', '-c', 'read line < {desk.mark('fifo')} || true']\n")
    run = desk.start("run", plan, "--plain")
    writer = os.open(desk.mark("fifo"), os.O_WRONLY)  # returns once the agent reads
    assert "only@1 starts" in desk.ask("history").stdout
    assert desk.ask("replay").returncode == 0
    os.close(writer)
    run.communicate(timeout=60)
    assert run.returncode == 0


def test_a_graph_in_postgresql_has_a_past_too(desk: Desk, postgres_database: str) -> None:
    known = conninfo_to_dict(postgres_database)
    url = f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"
    assert desk.run("run", desk.plan(PLAN), "--store", url).returncode == 1
    told = desk.ask("history", "first", "--store", url).stdout
    assert "attempt 1: closed after" in told
    assert "first@1 starts, in place 1 of 1" in told
    assert desk.ask("replay", "--store", url).stdout.endswith(": all the same\n")
    assert desk.document("history", "--at", "4", "--store", url)["entry"] == 4


def test_a_store_of_the_first_version_has_a_log_from_its_first_run_on(desk: Desk) -> None:
    assert desk.run("run", desk.plan(PLAN)).returncode == 1
    first_version(database(desk))
    refused = desk.ask("history")
    assert refused.returncode == 2
    assert "was made by an older version; `run` a plan on it once" in refused.stderr
    assert desk.run("run", desk.folder / "plan.toml").returncode == 1
    assert desk.ask("retry", "first").returncode == 0
    told = desk.ask("history").stdout.splitlines()
    assert "took the graph up (epoch 2" in told[0]
    assert any("retry first" in line for line in told)
    replayed = desk.ask("replay")
    assert replayed.returncode == 0
    assert replayed.stdout.startswith("what came before was not written down: the store was made by an older version\n")
    assert desk.ask("history", "--at", "2001-01-01").returncode == 2


def first_version(path: Path) -> None:
    """Make of a store the one that the first version would have left."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = ("graphs", "claims", "slices", "specs", "attempts", "intents")
        rows = {}
        with closing(sqlite3.connect(":memory:")) as old:
            for statement in migrations("dispatch.store", "sqlite")[0]:
                old.execute(statement)
            for table in tables:
                columns = ", ".join(name for _, name, *_ in old.execute(f"PRAGMA table_info({table})"))
                rows[table] = columns, connection.execute(f"SELECT {columns} FROM {table}").fetchall()
        connection.execute("PRAGMA foreign_keys = OFF")
        for table in ("log", "keyframes", *tables):
            connection.execute(f"DROP TABLE {table}")
        for statement in migrations("dispatch.store", "sqlite")[0]:
            connection.execute(statement)
        for table, (columns, found) in rows.items():
            places = ", ".join("?" * (columns.count(",") + 1))
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", found)
        connection.execute("PRAGMA user_version = 1")
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
