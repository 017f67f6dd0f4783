"""An authority and a queue in one SQLite file: its transactions, its locks, processes that are killed, and the disk."""

from __future__ import annotations

import ast
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet import sqlite_joint
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.ports import Authority
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.transport.sqlite_order import FOLD_AT
from harness.fleet.work_item import WorkItemState
from tests.conformance.joint_rig import begin, ending, joint_of, opened, opening, settle, state, turn
from tests.integration import sqlite_joint_child
from tests.integration.store_child import child

READY, RUNNING, SUCCEEDED = WorkItemState.READY, WorkItemState.RUNNING, WorkItemState.SUCCEEDED
POINTS = ("before-admit-commit", "after-admit-commit", "before-settle-commit", "after-settle-commit")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def fleet(path: Path) -> Iterator[Fleet]:
    with opened(f"sqlite:///{path}") as made:
        yield made


class Statements:
    """Those that begin and end transactions on an authority's connection, as they come."""

    def __init__(self, authority: Authority) -> None:
        self.seen: list[str] = []
        assert isinstance(authority, SqliteWorkItems) and authority._connection is not None
        authority._connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        if statement.split()[0] in ("BEGIN", "COMMIT", "ROLLBACK"):
            self.seen.append(statement)


def test_a_turn_is_admitted_in_one_transaction_and_settled_in_one(fleet: Fleet) -> None:
    ((one, item),) = begin(fleet, "before")
    statements = Statements(fleet.authority)
    fleet.queue.submit(turn("a"))
    assert statements.seen == ["BEGIN IMMEDIATE", "COMMIT"]
    settle(fleet, [ending(one, item)])
    assert statements.seen == ["BEGIN IMMEDIATE", "COMMIT"] * 2


def test_what_only_the_queue_knows_is_not_admitted_this_way(fleet: Fleet, path: Path) -> None:
    fleet.transport.depth()
    with contextlib.closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("INSERT INTO agent_dispatch_queue (job_id) VALUES ('a')")
    assert joint_of(fleet).admit([turn("b"), turn("a")], 100) is None
    assert fleet.authority.find(["a", "b"]) == {}


def test_a_refusal_waits_for_no_lock(fleet: Fleet, path: Path) -> None:
    fleet.queue.submit(turn("a"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        assert joint_of(fleet).admit([turn("b")], 1) is None
        locking.execute("ROLLBACK")


def test_processes_at_once_never_exceed_the_bound_and_leave_no_orphans(fleet: Fleet, path: Path) -> None:
    fleet.transport.depth()
    with contextlib.ExitStack() as stack:
        roles = [(sqlite_joint_child.admit_many, path, prefix, 15) for prefix in "xyz"]
        producers = [stack.enter_context(child(*role)) for role in roles]
        assert {producer.hear() for producer in producers} == {"ready"}
        for producer in producers:
            producer.pipe.send("go")
        accepted = [name for producer in producers for name in str(producer.hear()).split()]
    assert len(accepted) == fleet.transport.depth() == 15
    everybody = [f"{prefix}-{number}" for prefix in "xyz" for number in range(10)]
    assert sorted(fleet.authority.find(everybody)) == sorted(accepted)


def test_what_a_stranger_wrote_in_bytes_that_are_no_text_is_in_nobodys_way(fleet: Fleet, path: Path) -> None:
    fleet.transport.depth()
    with contextlib.closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("INSERT INTO agent_dispatch_queue (job_id, tenant) VALUES (CAST(x'ff' AS TEXT), 't')")
    items = joint_of(fleet).admit([turn(f"{number}") for number in range(FOLD_AT)], 1000)
    assert items is not None and len(items) == FOLD_AT
    came = fleet.transport.receive(1000, 0.0)
    assert [one.problem != "" for one in came].count(True) == 1 and len(came) == FOLD_AT + 1


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_around_a_commit_leaves_both_sides_or_neither(fleet: Fleet, path: Path, point: str) -> None:
    """The item and its delivery; the end, its outcome, the acknowledgement and the session's lock."""
    heard: list[str] = []
    with child(sqlite_joint_child.life, path, f"sqlite-joint.{point}") as victim, contextlib.suppress(EOFError):
        while True:
            heard.append(str(victim.hear()))
    found = {name: item.state for name, item in fleet.authority.find(["a"]).items()}
    outcomes, depth = len(fleet.authority.outcomes("a")), fleet.transport.depth()
    assert (heard, found, outcomes, depth) == {
        "before-admit-commit": ([], {}, 0, 0),
        "after-admit-commit": ([], {"a": READY}, 0, 1),
        "before-settle-commit": (["admitted", "begun"], {"a": RUNNING}, 0, 1),
        "after-settle-commit": (["admitted", "begun"], {"a": SUCCEEDED}, 1, 0),
    }[point]
    assert fleet.authority.lock_sessions([("t", "of a")]) == (True,), "a lock ends with its process"


def test_every_killpoint_is_tried() -> None:
    tree = ast.parse(Path(str(sqlite_joint.__file__)).read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = {ast.literal_eval(node.args[0]) for node in calls if ast.unparse(node.func) == "killpoint"}
    assert found == {f"sqlite-joint.{point}" for point in POINTS}


def test_what_is_promised_waits_for_the_disk(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was done without waiting for it before."""
    seen: list[tuple[str, int]] = []

    def noting(point: str) -> None:
        assert isinstance(fleet.authority, SqliteWorkItems) and fleet.authority._connection is not None
        seen.append((point, fleet.authority._connection.execute("PRAGMA synchronous").fetchone()[0]))

    monkeypatch.setattr(sqlite_joint, "killpoint", noting)
    fleet.authority.lock_sessions([("t", "another")])
    ((one, item),) = begin(fleet, "a")
    fleet.authority.unlock_sessions([("t", "another")])
    settle(fleet, [ending(one, item)])
    full = 2
    assert [(point, level) for point, level in seen if "before" in point] == [
        ("sqlite-joint.before-admit-commit", full),
        ("sqlite-joint.before-settle-commit", full),
        ("sqlite-joint.before-settle-commit", full),
    ]


def test_a_settlement_that_failed_has_not_happened_and_is_repeated(
    fleet: Fleet, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((one, item),) = begin(fleet, "a")
    fleet.queue.submit(turn("b"))
    (two,) = fleet.transport.receive(1, 0.0)

    def fail(point: str) -> None:
        raise FleetUnavailableError(point)

    with monkeypatch.context() as away:
        away.setattr(sqlite_joint, "killpoint", fail)
        with pytest.raises(FleetUnavailableError):
            settle(fleet, [ending(one, item)], [opening(two)])
    assert (state(fleet, "a"), state(fleet, "b"), fleet.transport.depth()) == (RUNNING, READY, 2)
    settled = settle(fleet, [ending(one, item)], [opening(two)])
    assert (state(fleet, "a"), state(fleet, "b"), settled.locked) == (SUCCEEDED, RUNNING, (True,))
    assert fleet.transport.depth() == 1


def test_a_fleet_in_one_file_has_a_joint_and_one_in_two_has_none(path: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{path}"
    with opened(uri) as fleet:
        fleet.queue.submit(turn("a"))
        assert fleet.joint is not None and fleet.transport.depth() == 1
        assert fleet.authority.find(["a"])["a"].delivered
    with contextlib.closing(open_fleet(FleetSettings("sqlite", uri, f"sqlite:///{tmp_path / 'queue.db'}"))) as fleet:
        assert fleet.joint is None


def test_two_files_are_no_pair(tmp_path: Path) -> None:
    with (
        contextlib.closing(SqliteWorkItems(tmp_path / "a.db")) as authority,
        contextlib.closing(SqliteTransport(tmp_path / "b.db")) as transport,
        pytest.raises(AssertionError),
    ):
        sqlite_joint.SqliteJoint(authority, transport)


def test_an_authoritys_file_is_no_queue_unless_it_is_said(fleet: Fleet, path: Path) -> None:
    fleet.transport.depth()
    with contextlib.closing(SqliteTransport(path)) as alone, pytest.raises(FleetBrokenError, match="another program"):
        alone.depth()
