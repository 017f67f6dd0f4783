"""`list --follow`: a graph shown anew whenever it has changed, while another process runs it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.e2e.desk import Desk, end, until
from tests.postgres_server import PostgresServer, databases

PLAN = """
[slices.first]
command = ["sh", "-c", "touch $MARKS/up; until test -e $MARKS/go; do sleep 0.02; done; echo 1 > first.txt"]
[slices.second]
needs = "first"
command = ["sh", "-c", "cp first.txt second.txt"]
"""
HELD = '[slices.a]\nhold = "x"\ncommand = ["true"]\n'


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, desk: Desk) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{desk.folder / 'graphs.db'}"
    known = conninfo_to_dict(databases().new())
    return f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"


def states(follower: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert follower.stdout is not None
    for line in follower.stdout:
        yield json.loads(line)


def test_each_change_is_a_line_of_json(desk: Desk, store: str) -> None:
    plan = desk.plan(PLAN)
    run = desk.start("run", plan, "--store", store)
    until(desk.mark("up").exists, run)
    follower = desk.start("list", "--follow", "--json", "--store", store)
    seen = states(follower)
    first = next(seen)
    assert (first["states"], first["owner"] is None) == ({"queued": 1, "running": 1}, False)
    desk.mark("go").touch()
    last = next(each for each in seen if each["states"] == {"merged": 2} and each["owner"] is None)
    assert [each["id"] for each in last["slices"]] == ["first", "second"]
    assert end(run)[0] == 0
    follower.send_signal(signal.SIGINT)
    assert follower.wait(20) == 130
    assert follower.stderr is not None
    assert follower.stderr.read() == ""


def test_an_owner_that_is_killed_is_noticed(desk: Desk, store: str) -> None:
    run = desk.start("run", desk.plan(PLAN), "--store", store)
    until(desk.mark("up").exists, run)
    follower = desk.start("list", "--follow", "--store", store)
    assert follower.stdout is not None
    lines = iter(follower.stdout)
    assert "run by another process" in next(lines)
    end(run, signal.SIGKILL)
    assert next(each for each in lines if "no process runs it" in each)
    end(follower, signal.SIGINT)


def test_it_says_once_that_the_store_is_away_and_goes_on(desk: Desk) -> None:
    with contextlib.closing(PostgresServer()) as server:
        server.start()
        url = server.url()
        plan = desk.plan(HELD)
        assert desk.run("run", plan, "--store", url).returncode == 1
        follower = desk.start("list", "--follow", "--json", "--store", url)
        seen = states(follower)
        assert next(seen)["slices"][0]["hold"] == "x"
        server.crash()
        assert follower.stderr is not None
        assert "trying again" in follower.stderr.readline()
        server.start()
        assert desk.ask("release", "a", "--store", url).returncode == 0
        assert next(each for each in seen if each["slices"][0]["hold"] is None)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(20) == 130
        assert follower.stderr.read() == ""
