"""The queues on databases, used by many processes at once, some of which are killed. Real processes, real signals."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from harness.fleet.ports import Transport
from tests.conformance.transport_rig import Clock, names, turn
from tests.integration import queue_child
from tests.integration.queue_child import LIMIT_S, PLENTY, THREADS, Where, child, queue_at

TABLES = {"sqlite": "agent_dispatch_queue", "postgres": "agent_dispatch.agent_dispatch_queue"}


@pytest.fixture(params=TABLES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    return tmp_path / "queue.db" if request.param == "sqlite" else request.getfixturevalue("postgres_database")


@pytest.fixture
def queue(where: Where) -> Iterator[Transport]:
    made = queue_at(where)
    assert made.depth() == 0
    yield made
    made.close()


def rows(where: Where) -> int:
    """Counted past the transport."""
    if isinstance(where, Path):
        with contextlib.closing(sqlite3.connect(where)) as file:
            return int(file.execute(f"SELECT count(*) FROM {TABLES['sqlite']}").fetchone()[0])
    with psycopg.connect(where, autocommit=True) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {TABLES['postgres']}".encode()).fetchone() or (-1,)
        return int(count)


def at_clock(where: Where, clock: Clock) -> Transport:
    if isinstance(where, Path):
        return queue_child.SqliteTransport(where, clock=clock)
    return queue_child.PostgresTransport(where, clock=clock)


def test_fifty_producers_fill_the_queue_and_never_exceed_it(where: Where, queue: Transport) -> None:
    limit, processes = 10, 50 // THREADS
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(queue_child.producers, where, f"p{number}", limit, 3))
            for number in range(processes)
        ]
        for each in children:
            assert each.hear() == "ready"
        for each in children:
            each.pipe.send("go")
        seen, told = [], list[object]()
        for each in children:
            while not each.pipe.poll(0.002):
                seen.append(rows(where))
            told.append(each.hear())
    assert max(seen) <= limit
    assert (sum(map(int, map(str, told))), rows(where), queue.depth()) == (limit, limit, limit)


def test_producers_beside_receivers_never_exceed_it_either(where: Where, queue: Transport) -> None:
    limit, seen, taken = 5, list[int](), list[str]()
    with child(queue_child.producers, where, "p", limit, 12) as producing:
        assert producing.hear() == "ready"
        producing.pipe.send("go")
        while not producing.pipe.poll(0):
            seen.append(rows(where))
            came = queue.receive(2, 0.01)
            taken += names(came)
            queue.acknowledge([one.receipt for one in came])
        admitted = producing.hear()
    assert max(seen) <= limit
    assert admitted == len(taken) + rows(where)
    assert queue.depth() == rows(where)
    assert len(set(taken)) == len(taken) > 0


def test_of_a_session_no_two_are_ever_out_and_each_is_delivered_once(
    where: Where, queue: Transport, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    held.mkdir()
    turns = [turn(f"{session}-{number}", f"{session}") for number in range(30) for session in range(4)]
    queue.put_many(turns, PLENTY)
    with ExitStack() as stack:
        workers = [stack.enter_context(child(queue_child.worker, where, held)) for _ in range(4)]
        for each in workers:
            assert each.hear() == "ready"
        for each in workers:
            each.pipe.send("go")
        received = Counter(job for each in workers for job in each.hear())  # type: ignore[attr-defined]
    assert received == Counter(one.job_id for one in turns)
    assert (rows(where), queue.depth()) == (0, 0)


def test_what_a_killed_receiver_held_is_delivered_again_and_not_before_its_time(where: Where, queue: Transport) -> None:
    queue.put_many([turn("a"), turn("b")], PLENTY)
    with child(queue_child.receiver, where) as gone:
        assert gone.hear() == ["a", "b"]
        gone.process.kill()
        gone.process.join(LIMIT_S)
        assert gone.process.exitcode == -signal.SIGKILL
    assert queue.receive(5, 0.0) == ()
    assert queue.depth() == 2
    assert queue.put_many([turn("c")], 2) == (False,), "what is out counts"
    later = at_clock(where, Clock(4e9))
    assert names(later.receive(5, 0.0)) == ["a", "b"]
    later.close()


POINTS = {
    "sqlite": [
        ("queue.before-put-commit", [], 0),
        ("queue.after-put-commit", [], 2),
        ("queue.before-receive-commit", ["put"], 2),
        ("queue.after-receive-commit", ["put"], 2),
        ("queue.before-acknowledge-commit", ["put", "received"], 2),
        ("queue.after-acknowledge-commit", ["put", "received"], 0),
    ],
    "postgres": [
        ("queue.before-put", [], 0),
        ("queue.after-put", [], 2),
        ("queue.after-receive", ["put"], 2),
        ("queue.before-acknowledge", ["put", "received"], 2),
        ("queue.after-acknowledge", ["put", "received"], 0),
    ],
}


def test_a_kill_at_any_point_leaves_all_or_nothing(where: Where, queue: Transport) -> None:
    for point, told, left in POINTS["sqlite" if isinstance(where, Path) else "postgres"]:
        with child(queue_child.victim, where, point) as dying:
            dying.killed()
            heard = []
            with contextlib.suppress(EOFError):
                while dying.pipe.poll(0):
                    heard.append(dying.pipe.recv())
        assert (point, heard, rows(where), queue.depth()) == (point, told, left, left)
        later = at_clock(where, Clock(4e9))
        came = later.receive(5, 0.0)
        assert len(came) == left
        assert later.acknowledge([one.receipt for one in came]) == (None,) * left
        later.close()
        assert (rows(where), queue.depth()) == (0, 0)
