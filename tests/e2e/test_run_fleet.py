"""`run --fleet`: a plan whose slices run on workers in processes of their own."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from harness.fleet.authority.url import open_work_items
from harness.fleet.ports import Query
from harness.fleet.work_item import WorkItem
from tests.e2e.desk import Desk, end, until

PLAN = """
cap = 4
[slices.base]
command = ["sh", "-c", "echo base >base.txt"]
[slices.left]
needs = "base"
command = ["sh", "-c", "touch $MARKS/left; until test -e $MARKS/right; do sleep 0.05; done; echo left >>shared.txt"]
[slices.right]
needs = "base"
command = ["sh", "-c", "touch $MARKS/right; until test -e $MARKS/left; do sleep 0.05; done; echo right >>shared.txt"]
[slices.slow]
command = ["sh", "-c", "mkdir $MARKS/first && echo $PPID >$MARKS/pid && sleep 1000; echo slow >slow.txt"]
[slices.side]
command = ["true"]
[slices.last]
needs = ["left", "right", "slow"]
command = ["sh", "-c", "cat base.txt shared.txt slow.txt >last.txt"]
"""


@pytest.fixture
def fleet(desk: Desk) -> Iterator[Desk]:
    """The same desk, with the fleet's settings and a bare repository in between."""
    remote = desk.folder / "remote.git"
    subprocess.run(("git", "init", "-q", "--bare", str(remote)), check=True)
    desk.env |= {
        "STATE_DB_URI": f"sqlite:///{desk.folder / 'state.db'}",
        "TASK_QUEUE_URI": f"sqlite:///{desk.folder / 'queue.db'}",
        "AGENT_DISPATCH_REMOTE": str(remote),
        "XDG_DATA_HOME": str(desk.folder / "data"),
    }
    yield desk


SHORT = {"AGENT_DISPATCH_CLAIM_TTL_S": "6", "AGENT_DISPATCH_RENEW_INTERVAL_S": "0.5"}  # for a worker that is killed


def worker(desk: Desk, name: str) -> subprocess.Popen[str]:
    """One that takes two turns at a time, on a machine of its own as far as its clone is concerned."""
    desk.env["AGENT_DISPATCH_CLONE"] = str(desk.folder / f"{name}.git")
    command = ("worker", "--workers", "2", "--executor", "agent=harness.fleet.agent:run", "--drain-s", "0")
    with (desk.folder / f"{name}.log").open("w") as log:
        return desk.start(*command, stdout=log, stderr=log)


def items(desk: Desk) -> dict[str, WorkItem]:
    """The work items, by the ids of their assignments."""
    authority = open_work_items(desk.env["STATE_DB_URI"])
    try:
        return {item.id.partition("/")[2]: item for item in authority.search(Query())}
    finally:
        authority.close()


def work_branches(desk: Desk) -> str:
    """What is left of finished work on the remote."""
    return desk.git("ls-remote", desk.env["AGENT_DISPATCH_REMOTE"], "refs/heads/dispatch/*/work/*")


def servers(backend: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a fleet on servers. Of Kafka's tests no other uses the topic of that name."""
    if backend == "sqlite":
        return {}
    known = conninfo_to_dict(request.getfixturevalue("postgres_database"))
    url = f"postgresql://{known['user']}@/{known['dbname']}?host={known['host']}"
    database = {"TASK_QUEUE_BACKEND": backend, "STATE_DB_URI": url}
    if backend == "postgres":
        return database | {"TASK_QUEUE_URI": ""}
    return database | {"KAFKA_BOOTSTRAP_SERVERS": request.getfixturevalue("kafka_broker")}


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "kafka"])
def test_two_workers_finish_a_graph_though_one_of_them_is_killed(
    fleet: Desk, backend: str, request: pytest.FixtureRequest
) -> None:
    fleet.env |= SHORT | servers(backend, request)
    workers = {process.pid: process for process in (worker(fleet, "one"), worker(fleet, "two"))}
    run = fleet.start("run", fleet.plan(PLAN), "--fleet")
    until(lambda: fleet.mark("pid").exists() and fleet.mark("pid").read_text().endswith("\n"), run)
    killed = workers.pop(int(fleet.mark("pid").read_text()))
    killed.kill()
    status, out, err = end(run)
    assert (status, err) == (0, ""), out
    assert "6 of 6 slices merged" in out
    assert "runs on the fleet" in out
    lines = fleet.git("log", "--first-parent", "--format=%(trailers:key=Dispatch-Slice,valueonly)", "main").split()
    assert Counter(lines) == Counter(["base", "left", "right", "slow", "last"]), "side changes nothing"
    last = (fleet.repo / "last.txt").read_text().split()
    assert (last[0], sorted(last[1:3]), last[3]) == ("base", ["left", "right"], "slow")
    found = items(fleet)
    assert (found["slow@1"].attempt, found["slow@1"].failures) == (2, 1), "lost once, and taken over"
    assert ("left@2" in found) is not ("right@2" in found), "one of the two that conflict was tried again"
    assert work_branches(fleet) == ""
    (survivor,) = workers.values()
    survivor.send_signal(signal.SIGTERM)
    assert survivor.wait(30.0) == 0
    for name in ("one", "two"):
        assert str(fleet.folder) not in (fleet.folder / f"{name}.log").read_text()


GATED = """
[slices.gated]
command = ["sh", "-c", "echo run >>$MARKS/runs; until test -e $MARKS/go; do sleep 0.05; done; echo 1 >gated.txt"]
"""


def test_a_run_that_is_stopped_leaves_its_turns_to_the_next_one(fleet: Desk) -> None:
    worker(fleet, "one")
    plan = fleet.plan(GATED)
    first = fleet.start("run", plan, "--fleet")
    until(fleet.mark("runs").exists, first)
    status, out, _ = end(first, signal.SIGINT)
    assert status == 130
    assert "what is out on the fleet goes on" in out
    assert not (fleet.repo / "gated.txt").exists()
    second = fleet.start("run", plan, "--fleet")
    fleet.mark("go").touch()
    status, out, _ = end(second)
    assert status == 0, out
    assert fleet.mark("runs").read_text() == "run\n"
    assert fleet.merged() == ["gated"]


LOST = """
[slices.lost]
command = ["sh", "-c", "mkdir $MARKS/first && echo 1 >part && echo $PPID >$MARKS/pid && sleep 1000; cp part whole"]
"""


def test_a_worker_that_comes_back_goes_on_from_what_its_killed_predecessor_left(fleet: Desk) -> None:
    """It was never pushed; and the agent that outlived its worker is ended."""
    fleet.env |= SHORT
    first = worker(fleet, "one")
    run = fleet.start("run", fleet.plan(LOST), "--fleet")
    until(lambda: fleet.mark("pid").exists() and fleet.mark("pid").read_text().endswith("\n"), run)
    first.kill()
    first.wait(30.0)
    (orphan,) = fleet.agents()[:1]
    worker(fleet, "one")
    status, out, _ = end(run)
    assert status == 0, out
    assert (fleet.repo / "whole").read_text() == "1\n"
    assert orphan not in fleet.agents()
    fleet.check_clean()


def test_a_scheduler_that_is_killed_loses_no_turn(fleet: Desk) -> None:
    worker(fleet, "one")
    plan = fleet.plan(GATED)
    first = fleet.start("run", plan, "--fleet")
    until(fleet.mark("runs").exists, first)
    first.kill()
    first.wait(30.0)
    fleet.mark("go").touch()
    done = fleet.run("run", plan, "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.mark("runs").read_text() == "run\n"
    assert fleet.merged() == ["gated"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TASK_QUEUE_BACKEND", "carrier-pigeons", "TASK_QUEUE_BACKEND: is none of sqlite, postgres, kafka"),
        ("AGENT_DISPATCH_RENEW_INTERVAL_S", "50", "AGENT_DISPATCH_RENEW_INTERVAL_S: is 50; it may be a third of"),
        ("STATE_DB_URI", "mysql://x", "STATE_DB_URI: names neither a PostgreSQL database nor a SQLite file"),
        ("AGENT_DISPATCH_REMOTE", "", "AGENT_DISPATCH_REMOTE: is not set, and this repository has no remote 'origin'"),
        ("AGENT_DISPATCH_REMOTE", "--upload-pack=x", "AGENT_DISPATCH_REMOTE: is no address of a git repository"),
    ],
)
def test_settings_that_are_wrong_are_told_in_a_line(fleet: Desk, name: str, value: str, words: str) -> None:
    fleet.env[name] = value
    done = fleet.ask("run", fleet.plan(GATED), "--fleet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {words}")
    assert done.stderr.count("\n") == 1
