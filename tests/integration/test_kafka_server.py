"""The broker that the Kafka tests run on: is it one for all, does it end? `test_kafka_outage.py` restarts one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import kafka_server
from tests.kafka_server import LIMIT_S

ROOT = Path(__file__).parents[2]


def test_is_one_for_all_workers_of_a_run(kafka_broker: str) -> None:
    program = "from tests import kafka_server; print(kafka_server.shared()); kafka_server.end_shared()"
    environ = {**os.environ, "PYTEST_XDIST_TESTRUNUID": os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))}
    asked = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert (asked.stdout.strip(), asked.stderr) == (kafka_broker, "")


def test_is_ended_last_by_the_one_who_started_it(tmp_path: Path) -> None:
    """Which waits for those that use it yet."""
    program = (
        "import sys; from tests import kafka_server as k; print(k.shared(), flush=True); sys.stdin.readline(); "
        "k.end_shared(); print('ended', flush=True)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    environ |= {"PYTEST_XDIST_TESTRUNUID": tmp_path.name + str(os.getpid()), "TMPDIR": str(tmp_path)}
    workers: list[subprocess.Popen[str]] = []
    try:
        addresses = []
        for _ in range(2):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            workers.append(subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environ, text=True, **pipes))
            addresses.append(line_of(workers[-1]))
        assert addresses[0] == addresses[1]
        say(workers[0], "no test is left here")
        assert kafka_server.answers(addresses[0].strip())
        say(workers[1], "nor here")
        assert [line_of(worker) for worker in workers] == ["ended\n", "ended\n"]
        assert not kafka_server.answers(addresses[0].strip())
        assert list(tmp_path.iterdir()) == []
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def line_of(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def say(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AssertionError, match=f"no {missing} here: the Kafka tests need Java 17 or newer and Maven"):
        kafka_server.program(missing)


def test_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "from tests.kafka_server import KafkaServer; server = KafkaServer(); server.start(); "
        "print(server.bootstrap, flush=True); input()"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environ, text=True, **pipes)
    host, port = line_of(starter).strip().split(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        starter.kill()
        starter.communicate()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


@pytest.mark.parametrize(("ci", "status", "words"), [("", 0, "NOT RUN: 1 tests of Kafka"), ("true", 1, "no java here")])
def test_a_run_without_java_says_so_loudly_and_fails_in_ci(ci: str, status: int, words: str) -> None:
    wanted = f"{Path(__file__).relative_to(ROOT)}::test_is_one_for_all_workers_of_a_run"
    left_out = ("CI", "KAFKA_BOOTSTRAP_SERVERS", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
    environ = {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": "/nowhere"}
    environ |= {"CI": ci} if ci else {}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", wanted]
    run = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert run.returncode == status, run.stdout + run.stderr
    assert words in run.stdout
