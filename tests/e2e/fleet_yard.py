"""What tests of a worker's command line work at: a fleet in two SQLite files, executors, workers as they are typed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission, WorkItem
from tests.e2e.desk import Desk, until

EXECUTORS = """
import os, pathlib, threading

MARKS = pathlib.Path(os.environ["MARKS"])

def echo(payload, guard):
    return guard.side_effect(payload.decode)

def gate(payload, guard):
    (MARKS / guard.item.id).touch()
    with open(MARKS / "gate") as gate:  # a pipe: until somebody opens it to write
        return gate.read()

def patient(payload, guard):
    (MARKS / guard.item.id).touch()
    while not guard.wait(60.0):
        pass
    guard.safepoint()

def deaf(payload, guard):
    (MARKS / guard.item.id).touch()
    threading.Event().wait()

def careless(payload, guard):
    raise FileNotFoundError(2, "No such file", str(pathlib.Path.home() / "secret" / os.environ.get("USER", "")))
"""
KINDS = ("echo", "gate", "patient", "deaf", "careless")


class Yard:
    def __init__(self, desk: Desk, place: Path | None = None) -> None:
        self.desk, self.place = desk, place or desk.folder
        (desk.folder / "turns_at_hand.py").write_text(EXECUTORS)
        os.mkfifo(desk.mark("gate"))
        desk.env |= {
            "PYTHONPATH": str(desk.folder),
            "STATE_DB_URI": f"sqlite:///{self.place / 'state.db'}",
        }

    @contextmanager
    def fleet(self) -> Iterator[Fleet]:
        with closing(open_fleet(FleetSettings.of(self.desk.env))) as fleet:
            yield fleet

    def submit(self, *names: str, kind: str = "echo", **more: int) -> None:
        with self.fleet() as fleet:
            queue = fleet.queue
            for name in names:
                given = Submission(name, "t", f"s-{name}", kind, fleet.authority.keep(name.encode()), **more)
                queue.submit(given)
            queue.flush()

    def item(self, name: str) -> WorkItem:
        with self.fleet() as fleet:
            return fleet.authority.find([name])[name]

    def state(self, name: str) -> str:
        return self.item(name).state.value

    def work(self, *words: str, kinds: tuple[str, ...] = KINDS) -> subprocess.Popen[str]:
        """A worker, once it is ready."""
        executors = [word for kind in kinds for word in ("--executor", f"{kind}=turns_at_hand:{kind}")]
        process = self.desk.start("worker", *executors, *words)
        self.told(process, "is ready for turns")
        return process

    def busy(self, name: str, kind: str, *words: str) -> subprocess.Popen[str]:
        """A worker in the middle of the turn `name`."""
        self.submit(name, kind=kind)
        process = self.work(*words)
        until(self.desk.mark(name).exists, process)
        return process

    def told(self, process: subprocess.Popen[str], words: str) -> str:
        """Reads its log up to the line that has the words."""
        assert process.stderr is not None
        for line in process.stderr:
            if words in line:
                return line
        raise AssertionError(f"it ended without a word of {words!r}")

    def open_gate(self) -> None:
        with self.desk.mark("gate").open("w") as gate:
            gate.write("through")

    def execute(self, statement: str) -> None:
        """By hand, in the authority's file."""
        with closing(sqlite3.connect(self.place / "state.db", isolation_level=None)) as connection:
            connection.execute(statement)
