"""Processes that use a queue while a test watches or kills them, forked by a server that has imported all there is."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import attrs

from harness.database import killpoint
from harness.fleet.ports import Transport
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.transport.sqlite import SqliteTransport
from tests.conformance.transport_rig import turn

LIMIT_S = 60.0  #: no test waits longer for a child
PLENTY = 10**6
THREADS = 10  #: producers in each process of them
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.conformance.transport_rig"])
Where = Path | str  #: the file of a SQLite queue, or the connection string of a PostgreSQL database


def queue_at(where: Where) -> Transport:
    return SqliteTransport(where) if isinstance(where, Path) else PostgresTransport(where)


@attrs.frozen
class Child:
    """`pipe` is the test's end."""

    process: BaseProcess
    pipe: Connection

    def hear(self) -> object:
        assert self.pipe.poll(LIMIT_S), "the child says nothing"
        return self.pipe.recv()

    def killed(self) -> None:
        """It has ended itself."""
        self.process.join(LIMIT_S)
        assert self.process.exitcode == -signal.SIGKILL, "the point was never passed"


@contextmanager
def child(role: object, *args: object) -> Iterator[Child]:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=role, args=(theirs, *args), daemon=True)  # type: ignore[arg-type]
    process.start()
    theirs.close()
    try:
        yield Child(process, ours)
    finally:
        ours.close()
        process.kill()
        process.join(LIMIT_S)


# -- roles -------------------------------------------------------------------------------------------------------------


def producers(pipe: Connection, where: Where, name: str, limit: int, turns: int) -> None:
    """Several at once, each with a client of its own: at a word they put, one by one, and tell how many went in."""
    clients = [queue_at(where) for _ in range(THREADS)]
    for client in clients:
        client.depth()
    pipe.send("ready")
    pipe.recv()

    def produce(number: int) -> int:
        names = (f"{name}-{number}-{count}" for count in range(turns))
        return sum(clients[number].put_many([turn(each)], limit)[0] for each in names)

    with ThreadPoolExecutor(THREADS) as pool:
        pipe.send(sum(pool.map(produce, range(THREADS))))


def receiver(pipe: Connection, where: Where) -> None:
    """Receives what there is and holds it until it is killed."""
    came = queue_at(where).receive(PLENTY, 0.0)
    pipe.send([one.envelope.job_id for one in came if one.envelope])
    pipe.recv()


def worker(pipe: Connection, where: Where, folder: Path) -> None:
    """Receives and acknowledges at a word until nothing is left, and tells what. As long as it holds a delivery there
    is a file of its session's name in `folder`, which no other worker may find there."""
    queue, received = queue_at(where), list[str]()
    queue.depth()
    pipe.send("ready")
    pipe.recv()
    while queue.depth():
        came = [one for one in queue.receive(3, 0.05) if one.envelope]
        for one in came:
            (folder / one.envelope.session_id).touch(exist_ok=False)  # type: ignore[union-attr]
        for one in came:
            received.append(one.envelope.job_id)  # type: ignore[union-attr]
            (folder / one.envelope.session_id).unlink()  # type: ignore[union-attr]
            queue.acknowledge([one.receipt])
    pipe.send(received)


def victim(pipe: Connection, where: Where, point: str) -> None:
    """Puts two turns, receives them and acknowledges them, and is killed at the named point on the way."""
    queue = queue_at(where)
    queue.depth()
    killpoint._name, killpoint._left = point, 1
    queue.put_many([turn("a"), turn("b")], PLENTY)
    pipe.send("put")
    out = queue.receive(2, 0.0)
    pipe.send("received")
    queue.acknowledge([one.receipt for one in out])
    pipe.send("acknowledged")
