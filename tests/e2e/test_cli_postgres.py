"""The command line on a graph kept in PostgreSQL."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.e2e.desk import LIMIT_S, Desk, end, until
from tests.postgres_server import PostgresServer

TWO = """
[slices.first]
command = ["sh", "-c", "touch $MARKS/up; until test -e $MARKS/go; do sleep 0.02; done; echo 1 > first.txt"]
[slices.second]
needs = "first"
command = ["sh", "-c", "cp first.txt second.txt"]
[slices.later]
hold = "not yet"
command = ["sh", "-c", "echo 3 > later.txt"]
"""


@pytest.fixture
def store(postgres_database: str) -> str:
    """The URL of an empty database."""
    known = conninfo_to_dict(postgres_database)
    return f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of this test's own, to do as it likes with."""
    with contextlib.closing(PostgresServer()) as server:
        server.start()
        yield server


def test_a_plan_runs_and_every_command_knows_its_graph(desk: Desk, store: str) -> None:
    desk.mark("go").touch()
    plan = desk.plan(TWO)
    done = desk.run("run", plan, DISPATCH_STORE=store)
    assert (done.returncode, desk.merged()) == (1, ["first", "second"]), done
    assert done.stdout.startswith("graph plan-")
    assert f"in {store}: 3 slices, 3 new\n" in done.stdout
    assert len(desk.document("graphs", "--store", store)["graphs"]) == 1
    assert desk.document("explain", "later", "--store", store)["reasons"][0]["code"] == "held"
    assert desk.ask("release", "later", "--store", store).returncode == 0
    assert desk.ask("log", "second", "--store", store).returncode == 0
    done = desk.run("run", plan, "--store", store)
    assert (done.returncode, desk.merged()) == (0, ["first", "second", "later"]), done
    assert desk.document("list", "--store", store)["states"] == {"merged": 3}
    desk.check_clean()


def test_a_run_that_was_killed_goes_on_at_once(desk: Desk, store: str) -> None:
    plan = desk.plan(TWO)
    run = desk.start("run", plan, "--store", store)
    until(desk.mark("up").exists, run)
    refused = desk.ask("run", plan, "--store", store)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--take-over" in refused.stderr
    end(run, signal.SIGKILL)
    desk.mark("go").touch()
    done = desk.run("run", plan, "--store", store)
    assert desk.merged() == ["first", "second"]
    assert "waiting" not in done.stdout + done.stderr
    desk.check_clean()


def test_what_runs_goes_on_while_the_server_is_away(desk: Desk, server: PostgresServer) -> None:
    plan = desk.plan(TWO)
    run = desk.start("run", plan, "--store", server.url())
    until(desk.mark("up").exists, run)
    server.crash()
    desk.mark("go").touch()
    assert run.stdout is not None
    told = list[str]()
    while not told or "the store is out of reach" not in told[-1]:
        told.append(next(run.stdout))
    assert desk.agents() == []  # the next one waits until the first one's end is on the disk
    server.start()
    told += run.stdout
    run.wait(LIMIT_S)
    assert desk.merged() == ["first", "second"], told
    for words in ("merged     first", "the store is out of reach", "the store is in reach again"):
        assert sum(words in line for line in told) == 1, told
    desk.check_clean()


def test_a_run_that_is_through_while_the_server_is_away_waits_for_it(desk: Desk, server: PostgresServer) -> None:
    until_told = "until test -e $MARKS/go; do sleep 0.02; done"
    plan = desk.plan(f'[slices.only]\ncommand = ["sh", "-c", "touch $MARKS/up; {until_told}; echo 1 > only.txt"]\n')
    run = desk.start("run", plan, "--store", server.url())
    until(desk.mark("up").exists, run)
    server.crash()
    desk.mark("go").touch()
    until(lambda: desk.merged() == ["only"], run)
    assert run.stdout is not None
    told = list[str]()
    while not told or "the store is out of reach" not in told[-1]:
        told.append(next(run.stdout))
    server.start()
    told += run.stdout
    assert run.wait(LIMIT_S) == 0, told
    assert desk.document("list", "--store", server.url())["states"] == {"merged": 1}
    desk.check_clean()


def test_no_password_is_shown(desk: Desk) -> None:
    done = desk.ask("list", "--store", "postgresql://bob:s3cret@127.0.0.1:1/x")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "out of reach" in done.stderr
    assert "s3cret" not in done.stderr
