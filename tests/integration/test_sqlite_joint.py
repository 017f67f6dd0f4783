"""An authority and a queue in one SQLite file: what concerns both happens in one transaction, or not at all."""

from __future__ import annotations

import ast
import contextlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.fleet import sqlite_joint
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.commands import Claim, Defer, Succeed
from harness.fleet.errors import (
    FleetBrokenError,
    FleetUnavailableError,
    ItemExistsError,
    LeaseLostError,
    QueueFullError,
    UnknownItemError,
    WrongStateError,
)
from harness.fleet.opening import open_fleet
from harness.fleet.ports import Delivery
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.transport.sqlite_order import FOLD_AT
from harness.fleet.work_item import WorkItem, WorkItemState
from tests.integration import sqlite_joint_child
from tests.integration.sqlite_joint_child import Pair, ending, opened, opening, turn
from tests.integration.store_child import child

READY, SUBMITTED = WorkItemState.READY, WorkItemState.SUBMITTED
RUNNING, SUCCEEDED = WorkItemState.RUNNING, WorkItemState.SUCCEEDED
POINTS = ("before-admit-commit", "after-admit-commit", "before-settle-commit", "after-settle-commit")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def pair(path: Path) -> Iterator[Pair]:
    with opened(path) as made:
        yield made


class Statements:
    """Those that begin and end transactions on an authority's connection, as they come."""

    def __init__(self, authority: SqliteWorkItems) -> None:
        self.seen: list[str] = []
        assert authority._connection is not None
        authority._connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        if statement.split()[0] in ("BEGIN", "COMMIT", "ROLLBACK"):
            self.seen.append(statement)


def begin(pair: Pair, *names: str) -> list[tuple[Delivery, WorkItem]]:
    """Admit them, and take them up."""
    for name in names:
        pair.queue.submit(turn(name))
    came = pair.transport.receive(len(names), 0.0)
    settled = pair.settle(openings=[opening(each) for each in came])
    items = [result for result in settled.openings if isinstance(result, WorkItem)]
    assert len(items) == len(names) and all(settled.locked)
    return list(zip(came, items, strict=True))


def state(pair: Pair, name: str) -> WorkItemState:
    return pair.authority.find([name])[name].state


# -- admission ---------------------------------------------------------------------------------------------------------


def test_an_item_and_its_delivery_come_in_one_transaction(pair: Pair) -> None:
    pair.queue.submit(turn("before"))
    statements = Statements(pair.authority)
    item = pair.queue.submit(turn("a", priority=1))
    assert statements.seen == ["BEGIN IMMEDIATE", "COMMIT"]
    assert item == pair.authority.find(["a"])["a"]
    assert item.state is READY and item.delivered
    envelopes = [delivery.envelope for delivery in pair.transport.receive(9, 0.0)]
    assert [each.job_id for each in envelopes if each is not None] == ["a", "before"]
    assert item.envelope(item.changed_at) in envelopes


def test_what_needs_no_delivery_gets_none(pair: Pair) -> None:
    results = pair.queue.submit_many([turn("a"), turn("b", depends_on=("a",))])
    assert [(each.state, each.delivered) for each in results if isinstance(each, WorkItem)] == [
        (READY, True),
        (SUBMITTED, False),
    ]
    assert not pair.queue.submit(turn("later", not_before=2e9)).delivered
    assert pair.transport.depth() == 1


def test_submitted_again_it_is_no_other_and_has_no_second_delivery(pair: Pair) -> None:
    first = pair.queue.submit(turn("a"))
    assert pair.joint.admit([turn("a")], 100) is None
    assert pair.joint.admit([turn("b"), turn("a")], 100) is None
    assert pair.authority.find(["b"]) == {}, "all or none"
    assert pair.queue.submit(turn("a")) == first
    with pytest.raises(ItemExistsError):
        pair.queue.submit(turn("a", priority=0))
    assert pair.transport.depth() == 1


def test_what_only_the_queue_knows_is_not_admitted_this_way(pair: Pair, path: Path) -> None:
    pair.transport.depth()
    with contextlib.closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("INSERT INTO agent_dispatch_queue (job_id) VALUES ('a')")
    assert pair.joint.admit([turn("b"), turn("a")], 100) is None
    assert pair.authority.find(["a", "b"]) == {}


def test_named_twice_it_is_one(pair: Pair) -> None:
    one, same = pair.queue.submit_many([turn("a"), turn("a")])
    assert one == same and pair.transport.depth() == 1


def test_what_can_not_be_is_refused_by_itself(pair: Pair) -> None:
    refused, fine = pair.queue.submit_many([turn("a", depends_on=("nobody",)), turn("b")])
    assert isinstance(refused, UnknownItemError) and isinstance(fine, WorkItem)
    assert pair.transport.depth() == 1


def test_a_refused_admission_leaves_nothing(pair: Pair, path: Path) -> None:
    with opened(path, depth=3) as small:
        results = small.queue.submit_many([turn(name) for name in "abcde"])
        assert [isinstance(each, WorkItem) for each in results] == [True] * 3 + [False] * 2
        with pytest.raises(QueueFullError):
            small.queue.submit(turn("f"))
        assert small.joint.admit([turn("g")], 3) is None
        assert sorted(pair.authority.find(list("abcdefg"))) == ["a", "b", "c"]
        assert pair.transport.depth() == 3


def test_a_refusal_waits_for_no_lock(pair: Pair, path: Path) -> None:
    pair.queue.submit(turn("a"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        assert pair.joint.admit([turn("b")], 1) is None
        locking.execute("ROLLBACK")


def test_processes_at_once_never_exceed_the_bound_and_leave_no_orphans(pair: Pair, path: Path) -> None:
    pair.transport.depth()
    with contextlib.ExitStack() as stack:
        roles = [(sqlite_joint_child.admit_many, path, prefix, 15) for prefix in "xyz"]
        producers = [stack.enter_context(child(*role)) for role in roles]
        assert {producer.hear() for producer in producers} == {"ready"}
        for producer in producers:
            producer.pipe.send("go")
        accepted = [name for producer in producers for name in str(producer.hear()).split()]
    assert len(accepted) == pair.transport.depth() == 15
    everybody = [f"{prefix}-{number}" for prefix in "xyz" for number in range(10)]
    assert sorted(pair.authority.find(everybody)) == sorted(accepted)


def test_the_same_submitted_by_all_at_once_is_one(pair: Pair, path: Path) -> None:
    def submit(_: int) -> list[WorkItem]:
        with opened(path) as another:
            return [another.queue.submit(turn(f"{number}")) for number in range(10)]

    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(submit, range(6)))
    assert all([item.id for item in items] == [f"{number}" for number in range(10)] for items in seen)
    assert pair.transport.depth() == 10


def test_what_a_stranger_wrote_in_bytes_that_are_no_text_is_in_nobodys_way(pair: Pair, path: Path) -> None:
    pair.transport.depth()
    with contextlib.closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("INSERT INTO agent_dispatch_queue (job_id, tenant) VALUES (CAST(x'ff' AS TEXT), 't')")
    items = pair.joint.admit([turn(f"{number}") for number in range(FOLD_AT)], 1000)
    assert items is not None and len(items) == FOLD_AT
    came = pair.transport.receive(1000, 0.0)
    assert [one.problem != "" for one in came].count(True) == 1 and len(came) == FOLD_AT + 1


# -- ends and beginnings -----------------------------------------------------------------------------------------------


def test_an_end_is_written_down_acknowledged_and_unlocked_at_once(pair: Pair, path: Path) -> None:
    ((one, item),) = begin(pair, "a")
    statements = Statements(pair.authority)
    settled = pair.settle([ending(one, item)])
    assert statements.seen == ["BEGIN IMMEDIATE", "COMMIT"]
    assert [each.state for each in settled.endings if isinstance(each, WorkItem)] == [SUCCEEDED]
    assert pair.transport.depth() == 0
    with opened(path) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)


def test_ends_and_beginnings_go_together(pair: Pair, path: Path) -> None:
    ((one, item),) = begin(pair, "a")
    pair.queue.submit(turn("b"))
    (next_one,) = pair.transport.receive(9, 0.0)
    settled = pair.settle([ending(one, item)], [opening(next_one)])
    assert (state(pair, "a"), state(pair, "b"), settled.locked) == (SUCCEEDED, RUNNING, (True,))
    assert pair.transport.depth() == 1
    with opened(path) as other:
        assert other.authority.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, False)


def test_who_lost_the_lease_acknowledges_nothing(pair: Pair, path: Path) -> None:
    (one, item), (two, other_item) = begin(pair, "a", "b")
    pair.authority.perform([Defer(item.lease, "given back")])
    lost, fine = pair.settle([ending(one, item), ending(two, other_item)]).endings
    assert isinstance(lost, LeaseLostError) and isinstance(fine, WorkItem)
    assert pair.transport.depth() == 1, "the other's is gone"
    with opened(path) as other:
        assert other.authority.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, True)


def test_a_claim_that_is_refused_keeps_no_lock(pair: Pair, path: Path) -> None:
    pair.queue.submit(turn("a"))
    (one,) = pair.transport.receive(9, 0.0)
    (item,) = pair.authority.perform([Claim("a", "t", "somebody", 60.0, starts=True)])
    assert isinstance(item, WorkItem)
    pair.authority.perform([Succeed(item.lease)])
    assert isinstance(pair.settle(openings=[opening(one)]).openings[0], WrongStateError)
    assert pair.transport.depth() == 1, "who claims in vain has not acknowledged"
    with opened(path) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)


def test_a_lock_that_somebody_holds_is_told_and_stays_theirs(pair: Pair, path: Path) -> None:
    pair.queue.submit(turn("a"))
    (one,) = pair.transport.receive(9, 0.0)
    with opened(path) as other:
        assert other.authority.lock_sessions([("t", "of a")]) == (True,)
        settled = pair.settle(openings=[opening(one)])
        assert settled.locked == (False,)
        assert [each.state for each in settled.openings if isinstance(each, WorkItem)] == [RUNNING]
        assert pair.authority.seize_sessions([("t", "of a")]) == (True,)


def test_an_acknowledgement_that_is_anothers_by_now_leaves_the_end_alone(pair: Pair) -> None:
    ((one, item),) = begin(pair, "a")
    assert pair.transport.give_back([one.receipt], 0.0) == (None,)
    (again,) = pair.transport.receive(9, 0.0)
    (ended,) = pair.settle([ending(one, item)]).endings
    assert isinstance(ended, WorkItem) and ended.state is SUCCEEDED
    assert pair.transport.depth() == 1
    assert pair.transport.acknowledge([again.receipt]) == (None,)


def test_acknowledged_again_by_the_queue_itself_it_is_done(pair: Pair) -> None:
    ((one, item),) = begin(pair, "a")
    pair.settle([ending(one, item)])
    assert pair.transport.acknowledge([one.receipt]) == (None,)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_around_a_commit_leaves_both_sides_or_neither(pair: Pair, path: Path, point: str) -> None:
    """The item and its delivery; the end, its outcome, the acknowledgement and the session's lock."""
    heard: list[str] = []
    with child(sqlite_joint_child.life, path, f"sqlite-joint.{point}") as victim, contextlib.suppress(EOFError):
        while True:
            heard.append(str(victim.hear()))
    found = {name: item.state for name, item in pair.authority.find(["a"]).items()}
    outcomes, depth = len(pair.authority.outcomes("a")), pair.transport.depth()
    assert (heard, found, outcomes, depth) == {
        "before-admit-commit": ([], {}, 0, 0),
        "after-admit-commit": ([], {"a": READY}, 0, 1),
        "before-settle-commit": (["admitted", "begun"], {"a": RUNNING}, 0, 1),
        "after-settle-commit": (["admitted", "begun"], {"a": SUCCEEDED}, 1, 0),
    }[point]
    assert pair.authority.lock_sessions([("t", "of a")]) == (True,), "a lock ends with its process"


def test_every_killpoint_is_tried() -> None:
    tree = ast.parse(Path(str(sqlite_joint.__file__)).read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = {ast.literal_eval(node.args[0]) for node in calls if ast.unparse(node.func) == "killpoint"}
    assert found == {f"sqlite-joint.{point}" for point in POINTS}


def test_what_is_promised_waits_for_the_disk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was done without waiting for it before."""
    seen: list[tuple[str, int]] = []

    def noting(point: str) -> None:
        assert pair.authority._connection is not None
        seen.append((point, pair.authority._connection.execute("PRAGMA synchronous").fetchone()[0]))

    monkeypatch.setattr(sqlite_joint, "killpoint", noting)
    pair.authority.lock_sessions([("t", "another")])
    ((one, item),) = begin(pair, "a")
    pair.authority.unlock_sessions([("t", "another")])
    pair.settle([ending(one, item)])
    full = 2
    assert [(point, level) for point, level in seen if "before" in point] == [
        ("sqlite-joint.before-admit-commit", full),
        ("sqlite-joint.before-settle-commit", full),
        ("sqlite-joint.before-settle-commit", full),
    ]


def test_a_settlement_that_failed_has_not_happened_and_is_repeated(
    pair: Pair, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((one, item),) = begin(pair, "a")
    pair.queue.submit(turn("b"))
    (two,) = pair.transport.receive(1, 0.0)

    def fail(point: str) -> None:
        raise FleetUnavailableError(point)

    with monkeypatch.context() as away:
        away.setattr(sqlite_joint, "killpoint", fail)
        with pytest.raises(FleetUnavailableError):
            pair.settle([ending(one, item)], [opening(two)])
    assert (state(pair, "a"), state(pair, "b"), pair.transport.depth()) == (RUNNING, READY, 2)
    settled = pair.settle([ending(one, item)], [opening(two)])
    assert (state(pair, "a"), state(pair, "b"), settled.locked) == (SUCCEEDED, RUNNING, (True,))
    assert pair.transport.depth() == 1


def test_a_fleet_in_one_file_has_a_joint_and_one_in_two_has_none(path: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{path}"
    with contextlib.closing(open_fleet(FleetSettings("sqlite", uri, uri))) as fleet:
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


def test_an_authoritys_file_is_no_queue_unless_it_is_said(pair: Pair, path: Path) -> None:
    pair.transport.depth()
    with contextlib.closing(SqliteTransport(path)) as alone, pytest.raises(FleetBrokenError, match="another program"):
        alone.depth()
