"""What a process does with an authority and a queue in one SQLite file while a test kills it."""

from __future__ import annotations

import importlib
import os
from multiprocessing.connection import Connection
from pathlib import Path

from harness.database import killpoint
from harness.fleet.errors import QueueFullError
from harness.fleet.work_item import WorkItem
from tests.conformance.joint_rig import ending, opened, opening, settle, turn


def life(path: Path, pipe: Connection, name: str) -> None:
    """A turn is admitted, begun and ended, and what is acknowledged is told; killed at the first passage of that
    killpoint from when it was begun, or at any if it is about admission."""
    if "admit" in name:
        kill_at(name)
    with opened(f"sqlite:///{path}") as fleet:
        fleet.queue.submit(turn("a"))
        pipe.send("admitted")
        (came,) = fleet.transport.receive(1, 0.0)
        (item,) = settle(fleet, openings=[opening(came)]).openings
        assert isinstance(item, WorkItem)
        pipe.send("begun")
        kill_at(name)
        settle(fleet, [ending(came, item)])
        pipe.send("ended")


def kill_at(name: str) -> None:
    os.environ["DISPATCH_KILLPOINT"] = f"{name}:1"
    importlib.reload(killpoint)


def admit_many(path: Path, pipe: Connection, prefix: str, depth: int) -> None:
    """Ten turns one by one, when told to; which were accepted is told."""
    with opened(f"sqlite:///{path}", depth) as fleet:
        fleet.transport.depth()
        pipe.send("ready")
        pipe.recv()
        accepted = []
        for number in range(10):
            try:
                accepted.append(fleet.queue.submit(turn(f"{prefix}-{number}")).id)
            except QueueFullError:
                continue
        pipe.send(" ".join(accepted))
