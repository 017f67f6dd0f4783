"""What a process does with an authority and a queue in one SQLite file while a test kills it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from harness.database import killpoint
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.authority.sqlite_file import FILE
from harness.fleet.commands import Claim, Succeed
from harness.fleet.ports import Delivery, Ending, Opening, Settled
from harness.fleet.queue import TurnQueue
from harness.fleet.sqlite_joint import SqliteJoint
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.work_item import Submission, WorkItem

TTL_S = 600.0


@attrs.frozen(eq=False)
class Pair:
    """An authority and its queue in one file."""

    authority: SqliteWorkItems
    transport: SqliteTransport
    depth: int

    @property
    def joint(self) -> SqliteJoint:
        return SqliteJoint(self.authority, self.transport)

    @property
    def queue(self) -> TurnQueue:
        return TurnQueue(self.authority, self.transport, self.depth, joint=self.joint)

    def settle(self, endings: Sequence[Ending] = (), openings: Sequence[Opening] = ()) -> Settled:
        return self.joint.settle(endings, openings)


@contextmanager
def opened(path: Path, depth: int = 100) -> Iterator[Pair]:
    with closing(SqliteWorkItems(path)) as authority, closing(SqliteTransport(path, kind=FILE)) as transport:
        yield Pair(authority, transport, depth)


def turn(name: str, session_id: str = "", **more: object) -> Submission:
    return Submission(name, "t", session_id or f"of {name}", "k", **more)  # type: ignore[arg-type]


def opening(delivery: Delivery) -> Opening:
    envelope = delivery.envelope
    assert envelope is not None
    claim = Claim(envelope.job_id, envelope.tenant, "me", TTL_S, starts=True)
    return Opening(claim, (envelope.tenant, envelope.session_id))


def ending(delivery: Delivery, item: WorkItem) -> Ending:
    return Ending(Succeed(item.lease), (item.tenant, item.session_id), delivery.receipt)


def life(path: Path, pipe: Connection, name: str) -> None:
    """A turn is admitted, begun and ended, and what is acknowledged is told; killed at the first passage of that
    killpoint from when it was begun, or at any if it is about admission."""
    if "admit" in name:
        kill_at(name)
    with opened(path) as pair:
        pair.queue.submit(turn("a"))
        pipe.send("admitted")
        (came,) = pair.transport.receive(1, 0.0)
        (item,) = pair.settle(openings=[opening(came)]).openings
        assert isinstance(item, WorkItem)
        pipe.send("begun")
        kill_at(name)
        pair.settle([ending(came, item)])
        pipe.send("ended")


def kill_at(name: str) -> None:
    os.environ["DISPATCH_KILLPOINT"] = f"{name}:1"
    importlib.reload(killpoint)


def admit_many(path: Path, pipe: Connection, prefix: str, depth: int) -> None:
    """Ten turns one by one, when told to; which were accepted is told."""
    from harness.fleet.errors import QueueFullError

    with opened(path, depth) as pair:
        pair.transport.depth()
        pipe.send("ready")
        pipe.recv()
        accepted = []
        for number in range(10):
            try:
                accepted.append(pair.queue.submit(turn(f"{prefix}-{number}")).id)
            except QueueFullError:
                continue
        pipe.send(" ".join(accepted))
