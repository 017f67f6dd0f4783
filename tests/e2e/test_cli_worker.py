"""`worker`, as it is typed: it is ready or says why not, it works, and it ends as it was asked to."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.desk import Desk, end, until
from tests.e2e.fleet_yard import Yard

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) .+|    in .+|  .+")


@pytest.fixture
def yard(desk: Desk) -> Yard:
    return Yard(desk)


def test_it_runs_what_there_is_and_ends_when_it_is_told_to(yard: Yard) -> None:
    yard.submit("a", "b", "c")
    worker = yard.work("--workers", "2")
    yard.submit("d")
    until(lambda: all(yard.state(name) == "succeeded" for name in "abcd"), worker)
    status, out, err = end(worker, TERM)
    assert (status, out) == (0, ""), err
    assert all(LINE.fullmatch(line) for line in err.splitlines()), err
    assert "the worker has ended" in err
    with yard.fleet() as fleet:
        assert fleet.transport.depth() == 0
        assert fleet.authority.workers(3600.0) == ()  # it has taken its leave


def test_a_turn_may_end_by_itself_after_the_first_signal(yard: Yard) -> None:
    worker = yard.busy("a", "gate")
    worker.send_signal(TERM)
    assert "1 under way" in yard.told(worker, "no more turns are taken")
    yard.submit("late")
    yard.open_gate()
    status, _, err = end(worker)
    assert status == 0, err
    assert (yard.state("a"), yard.item("a").result) == ("succeeded", "through")
    assert yard.state("late") == "ready"


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_turn_that_takes_too_long_is_asked_to_stop_and_given_back_unharmed(
    yard: Yard, number: signal.Signals
) -> None:
    worker = yard.busy("a", "patient", "--drain-s", "0")
    status, _, err = end(worker, number)
    assert status == 0, err
    item = yard.item("a")
    assert (item.state.value, item.attempt, item.failures) == ("ready", 1, 0)
    other = yard.work()
    until(lambda: yard.item("a").attempt == 2, other)


def test_a_turn_that_does_not_stop_is_left_to_its_lease(yard: Yard) -> None:
    worker = yard.busy("a", "deaf", "--drain-s", "0")
    status, _, err = end(worker, TERM)
    assert status == 1
    assert "turns were left behind" in err
    assert yard.state("a") == "running"


def test_a_second_signal_ends_it_at_once(yard: Yard) -> None:
    worker = yard.busy("a", "gate", "--drain-s", "600")
    worker.send_signal(TERM)
    yard.told(worker, "no more turns are taken")
    status, _, err = end(worker, TERM)
    assert status == 128 + TERM
    assert "ended at once" in err
    assert yard.state("a") == "running"


def test_a_worker_that_cant_go_on_says_so(yard: Yard) -> None:
    worker = yard.work()
    yard.execute("DROP TABLE items")
    status, _, err = end(worker)
    assert status == 1
    assert "the worker could not go on" in err
    assert str(yard.place) not in err


def test_what_is_wrong_is_told_line_by_line_and_nothing_is_begun(yard: Yard) -> None:
    settings = {"TASK_QUEUE_BACKEND": "redis", "AGENT_DISPATCH_CLAIM_TTL_S": "301"}
    done = yard.desk.run("worker", "--executor", "echo", "--executor", "k=nowhere:f", **settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(":")[1].strip() for line in done.stderr.splitlines()] == [
        "TASK_QUEUE_BACKEND", "AGENT_DISPATCH_CLAIM_TTL_S", "--executor echo", "executor of 'k'",
    ]  # fmt: skip
    assert all(line.startswith("error: ") for line in done.stderr.splitlines())
    assert not (yard.place / "state.db").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"STATE_DB_URI": "postgresql://ada@127.0.0.1:1/db"},
        {"TASK_QUEUE_BACKEND": "postgres", "TASK_QUEUE_URI": "postgresql://ada@127.0.0.1:1/db"},
        {"TASK_QUEUE_URI": "sqlite:////proc/nowhere/queue.db"},
    ],
)
def test_what_was_asked_for_and_is_out_of_reach_is_no_reason_to_take_something_else(
    yard: Yard, settings: dict[str, str]
) -> None:
    done = yard.desk.run("worker", "--executor", "echo=turns_at_hand:echo", **settings)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not re.search(r"ada|127\.0|nowhere", done.stderr)


def test_metrics_are_served_on_loopback_where_the_port_is_free(yard: Yard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--metrics-port", str(port))
        done = yard.desk.run("worker", "--executor", "echo=turns_at_hand:echo", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: --metrics-port {port}: Address already in use")
    worker = yard.work(*words)

    def told() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    until(lambda: "agent_dispatch_workers 1.0" in told(), worker)
    assert end(worker, TERM)[0] == 0
    with pytest.raises(OSError, match="refused"):
        told()


def test_the_script_is_the_command() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["agent-dispatch-worker"].partition(":")

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        program = (
            f"import sys; sys.argv = ['/bin/agent-dispatch-worker', *{words}]; from {module} import {name}; {name}()"
        )
        return subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)

    shown = typed("--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: agent-dispatch-worker [OPTIONS]\n") and "--drain-s" in shown.stdout
    mistyped = typed("--workers", "none")
    assert mistyped.returncode == 2
    assert mistyped.stderr.endswith("; see: agent-dispatch-worker --help\n")
