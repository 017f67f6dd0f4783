"""A queue in a SQLite file: strangers' writes, waiting, and files that are no queue, or none any more."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, StaleReceiptError
from harness.fleet.transport import sqlite
from harness.fleet.transport.sqlite import SqliteTransport
from tests.conformance.transport_rig import START, Clock, names, receipts, turn
from tests.integration import queue_child
from tests.integration.queue_child import child

LIMIT_S = 30.0
PLENTY = 10**6
Execute = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "queue.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(path: Path, clock: Clock) -> Iterator[SqliteTransport]:
    with contextlib.closing(SqliteTransport(path, clock=clock)) as transport:
        assert transport.depth() == 0
        yield transport


@pytest.fixture
def stranger(path: Path, queue: SqliteTransport) -> Iterator[Execute]:
    """Executes a statement and commits it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield lambda sql, *values: connection.execute(sql, values).fetchall()


# -- strangers ---------------------------------------------------------------------------------------------------------

GOOD = {"job_id": "j", "session_id": "s", "kind": "k", "payload_ref": "", "tenant": "t"}


@pytest.mark.parametrize(
    "odd",
    [
        {"job_id": ""},
        {"job_id": "two\nlines"},
        {"job_id": b"\xff\xfe bytes"},
        {"session_id": None},
        {"session_id": 7.5, "kind": b"\x00"},
        {"tenant": None, "kind": None},
        {"priority": 4},
        {"priority": "high"},
        {"priority": None},
        {"priority": 1.5},
        {"deadline": "tomorrow"},
        {"deadline": float("inf")},
        {"enqueued_at": -1.0},
        {"enqueued_at": "now"},
        {"attempt": 2**40},
    ],
    ids=repr,
)
def test_a_row_that_is_no_envelope_is_told_and_blocks_nothing(
    queue: SqliteTransport, stranger: Execute, odd: dict[str, object]
) -> None:
    row = GOOD | odd
    stranger(f"INSERT INTO agent_dispatch_queue ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values())
    queue.put_many([turn("good")], PLENTY)
    came = queue.receive(5, 0.0)
    assert sorted(names(came)) == ["?", "good"]
    (bad,) = [one for one in came if one.envelope is None]
    assert bad.raw.startswith(b"{") and bad.problem
    assert queue.acknowledge(receipts(came)) == (None, None)
    assert queue.depth() == 0


def test_text_that_is_no_utf_8_is_told_and_blocks_nothing(queue: SqliteTransport, stranger: Execute) -> None:
    stranger(
        "INSERT INTO agent_dispatch_queue (job_id, session_id) VALUES (CAST(x'61ff' AS TEXT), CAST(x'fe' AS TEXT))"
    )
    (bad,) = queue.receive(5, 0.0)
    assert bad.envelope is None and bad.problem
    assert queue.give_back([bad.receipt], 0.0) == (None,)
    assert queue.acknowledge(receipts(queue.receive(5, 0.0))) == (None,)
    assert queue.depth() == 0


def test_what_strangers_delete_or_rewrite_is_followed(queue: SqliteTransport, stranger: Execute) -> None:
    queue.put_many([turn(name, enqueued_at=START + place) for place, name in enumerate("abcd")], PLENTY)
    (first,) = queue.receive(1, 0.0)
    stranger("DELETE FROM agent_dispatch_queue WHERE job_id IN ('a', 'b')")
    stranger("UPDATE agent_dispatch_queue SET priority = 0, session_id = 'another' WHERE job_id = 'd'")
    assert queue.depth() == 2
    assert isinstance(queue.acknowledge([first.receipt])[0], StaleReceiptError)
    assert names(queue.receive(5, 0.0)) == ["d", "c"]
    stranger("DELETE FROM agent_dispatch_queue")
    assert (queue.depth(), queue.receive(5, 0.0)) == (0, ())
    queue.put_many([turn("e")], 1)
    assert names(queue.receive(5, 0.0)) == ["e"]


def test_with_the_work_everything_beside_the_queue_goes(queue: SqliteTransport, stranger: Execute) -> None:
    queue.put_many([turn(f"{number}", tenant=f"secret {number % 3}") for number in range(9)], PLENTY)
    came = queue.receive(9, 0.0)
    kept = repr(stranger("SELECT * FROM agent_dispatch_tenant") + stranger("SELECT * FROM agent_dispatch_group"))
    assert "secret" not in kept and "session" not in kept
    queue.acknowledge(receipts(came))
    assert queue.receive(1, 0.0) == ()
    for table in ("tenant", "group", "lane", "entry", "note"):
        assert stranger(f"SELECT * FROM agent_dispatch_{table}") == [], table


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_receiver_wakes_at_once_when_another_process_puts(path: Path) -> None:
    with (
        contextlib.closing(SqliteTransport(path)) as queue,
        ThreadPoolExecutor(1) as pool,
        child(queue_child.producers, path, "p", PLENTY, 1) as producing,
    ):
        assert producing.hear() == "ready"
        waiting = pool.submit(queue.receive, 1, LIMIT_S)
        began = time.process_time()
        producing.pipe.send("go")
        assert len(waiting.result(LIMIT_S)) == 1
        assert time.process_time() - began < 5.0


def test_a_receiver_is_woken_by_the_hour(path: Path) -> None:
    with contextlib.closing(SqliteTransport(path)) as queue:
        queue.put_many([turn("a")], PLENTY)
        queue.give_back(receipts(queue.receive(1, 0.0)), 0.2)
        assert names(queue.receive(1, LIMIT_S)) == ["a"]


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_is_its_owners_alone(queue: SqliteTransport, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with contextlib.closing(SqliteTransport(path)) as queue, pytest.raises(FleetBrokenError, match="another program"):
        queue.depth()
    assert path.read_bytes() == before


def test_a_file_that_was_replaced_is_noticed_and_opened_anew(queue: SqliteTransport, path: Path) -> None:
    queue.put_many([turn("a")], PLENTY)
    for each in path.parent.glob("queue.db*"):
        each.unlink()
    with pytest.raises(FleetUnavailableError, match="removed or replaced"):
        queue.put_many([turn("b")], PLENTY)
    assert queue.put_many([turn("b")], PLENTY) == (True,)
    assert queue.depth() == 1


def test_a_file_that_stays_locked_is_unavailable_and_no_call_leaves_anything_behind(
    path: Path, queue: SqliteTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "PATIENCE_S", 0.1)
    with (
        contextlib.closing(SqliteTransport(path)) as hasty,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as locking,
    ):
        locking.execute("BEGIN IMMEDIATE")
        with pytest.raises(FleetUnavailableError, match="locked"):
            hasty.put_many([turn("a")], PLENTY)
        assert hasty.depth() == 0, "reading goes on"
        locking.execute("ROLLBACK")
        assert hasty.put_many([turn("a")], PLENTY) == (True,)
        assert hasty.depth() == 1


def test_a_refusal_waits_for_no_lock(path: Path, queue: SqliteTransport) -> None:
    queue.put_many([turn("a")], 1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        assert queue.put_many([turn("b"), turn("a")], 1) == (False, True)
        locking.execute("ROLLBACK")


def test_a_forked_child_leaves_the_parents_queue_alone(queue: SqliteTransport) -> None:
    queue.put_many([turn("a")], PLENTY)
    pid = os.fork()
    if pid == 0:
        try:
            queue.depth()
        except FleetBrokenError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert queue.put_many([turn("b")], PLENTY) == (True,)
    assert queue.depth() == 2


def test_puts_and_acknowledgements_wait_for_the_disk_and_claims_do_not(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(SqliteTransport(path, clock=clock)) as queue:
        seen: list[tuple[str, int]] = []

        def noting(point: str) -> None:
            assert queue._connection is not None
            seen.append((point, queue._connection.execute("PRAGMA synchronous").fetchone()[0]))

        monkeypatch.setattr(sqlite, "killpoint", noting)
        queue.put_many([turn("a")], PLENTY)
        queue.acknowledge(receipts(queue.receive(1, 0.0)))
    full, normal = 2, 1
    assert [(point, level) for point, level in seen if "before" in point] == [
        ("queue.before-put-commit", full),
        ("queue.before-receive-commit", normal),
        ("queue.before-acknowledge-commit", full),
    ]
