"""An authority and a queue in one database: what concerns both happens in one transaction, or not at all."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from harness.database.postgres_wire import Result as Reply
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.commands import Claim, Defer, Succeed
from harness.fleet.errors import (
    FleetUnavailableError,
    ItemExistsError,
    LeaseLostError,
    QueueFullError,
    UnknownItemError,
    WrongStateError,
)
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.ports import Delivery, Ending, Joint, Opening, Settled
from harness.fleet.postgres_joint import PostgresJoint
from harness.fleet.queue import TurnQueue
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from tests.tcp_proxy import Flow, TcpProxy

LIMIT_S = 30.0
READY, SUBMITTED = WorkItemState.READY, WorkItemState.SUBMITTED
RUNNING, SUCCEEDED = WorkItemState.RUNNING, WorkItemState.SUCCEEDED


def opened(conninfo: str, depth: int = 100) -> Fleet:
    place = {key: value for key, value in conninfo_to_dict(conninfo).items() if key != "dbname"}
    url = f"postgresql:///{conninfo_to_dict(conninfo)['dbname']}?{urlencode(place)}"
    return open_fleet(FleetSettings("postgres", url, url, max_depth=depth))


@pytest.fixture
def fleet(postgres_database: str) -> Iterator[Fleet]:
    with contextlib.closing(opened(postgres_database)) as made:
        yield made


@pytest.fixture
def joint(fleet: Fleet) -> Joint:
    assert fleet.joint is not None
    return fleet.joint


@pytest.fixture
def stranger(postgres_database: str) -> Iterator[Callable[[str], Any]]:
    """The single value of a query, asked by somebody else."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:

        def ask(query: str) -> Any:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

        yield ask


def turn(name: str, session_id: str = "", **more: Any) -> Submission:
    return Submission(name, "t", session_id or f"of {name}", "k", **more)


def begin(fleet: Fleet, *names: str) -> list[tuple[Delivery, WorkItem]]:
    """Admit them, and take them up."""
    for name in names:
        fleet.queue.submit(turn(name))
    came = fleet.transport.receive(len(names), LIMIT_S)
    settled = settle(fleet, openings=[opening(each) for each in came])
    items = [result for result in settled.openings if isinstance(result, WorkItem)]
    assert len(items) == len(names) and all(settled.locked)
    return list(zip(came, items, strict=True))


def opening(delivery: Delivery) -> Opening:
    envelope = delivery.envelope
    assert envelope is not None
    claim = Claim(envelope.job_id, envelope.tenant, "me", 60.0, starts=True)
    return Opening(claim, (envelope.tenant, envelope.session_id))


def ending(delivery: Delivery, item: WorkItem) -> Ending:
    return Ending(Succeed(item.lease), (item.tenant, item.session_id), delivery.receipt)


def settle(fleet: Fleet, endings: Sequence[Ending] = (), openings: Sequence[Opening] = ()) -> Settled:
    assert fleet.joint is not None
    return fleet.joint.settle(endings, openings)


def state(fleet: Fleet, name: str) -> WorkItemState:
    return fleet.authority.find([name])[name].state


# -- admission ---------------------------------------------------------------------------------------------------------


def test_an_item_and_its_delivery_come_in_one_transaction(fleet: Fleet, stranger: Callable[[str], Any]) -> None:
    fleet.queue.submit(turn("before"))  # what is made once is made
    count = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = stranger(count)
    item = fleet.queue.submit(turn("a", priority=1))
    assert stranger(count) - before == 1
    assert item == fleet.authority.find(["a"])["a"]
    assert item.state is READY and item.delivered
    envelopes = [delivery.envelope for delivery in fleet.transport.receive(9, 0.0)]
    assert [each.job_id for each in envelopes if each is not None] == ["a", "before"]
    assert item.envelope(item.changed_at) in envelopes


def test_what_needs_no_delivery_gets_none(fleet: Fleet) -> None:
    results = fleet.queue.submit_many([turn("a"), turn("b", depends_on=("a",))])
    assert [(each.state, each.delivered) for each in results if isinstance(each, WorkItem)] == [
        (READY, True),
        (SUBMITTED, False),
    ]
    assert not fleet.queue.submit(turn("later", not_before=2e9)).delivered
    assert fleet.transport.depth() == 1


def test_submitted_again_it_is_no_other_and_has_no_second_delivery(fleet: Fleet, joint: Joint) -> None:
    first = fleet.queue.submit(turn("a"))
    assert joint.admit([turn("a")], 100) is None
    assert joint.admit([turn("b"), turn("a")], 100) is None
    assert fleet.authority.find(["b"]) == {}, "all or none"
    assert fleet.queue.submit(turn("a")) == first
    with pytest.raises(ItemExistsError):
        fleet.queue.submit(turn("a", priority=0))
    assert fleet.transport.depth() == 1


def test_named_twice_it_is_one(fleet: Fleet) -> None:
    one, same = fleet.queue.submit_many([turn("a"), turn("a")])
    assert one == same and fleet.transport.depth() == 1


def test_what_can_not_be_is_refused_by_itself(fleet: Fleet) -> None:
    refused, fine = fleet.queue.submit_many([turn("a", depends_on=("nobody",)), turn("b")])
    assert isinstance(refused, UnknownItemError) and isinstance(fine, WorkItem)
    assert fleet.transport.depth() == 1


def test_a_refused_admission_leaves_nothing(fleet: Fleet, postgres_database: str) -> None:
    with contextlib.closing(opened(postgres_database, depth=3)) as small:
        results = small.queue.submit_many([turn(name) for name in "abcde"])
        assert [isinstance(each, WorkItem) for each in results] == [True] * 3 + [False] * 2
        with pytest.raises(QueueFullError):
            small.queue.submit(turn("f"))
        assert small.joint is not None and small.joint.admit([turn("g")], 3) is None
        assert sorted(fleet.authority.find(list("abcdefg"))) == ["a", "b", "c"]
        assert fleet.transport.depth() == 3


def test_many_at_once_never_exceed_the_bound_and_leave_no_orphans(postgres_database: str) -> None:
    with contextlib.ExitStack() as stack:
        fleets = [stack.enter_context(contextlib.closing(opened(postgres_database, depth=10))) for _ in range(8)]
        go = threading.Barrier(len(fleets))

        def submit(place: int) -> list[str]:
            go.wait(LIMIT_S)
            accepted = []
            for number in range(5):
                with contextlib.suppress(QueueFullError):
                    accepted.append(fleets[place].queue.submit(turn(f"{place}-{number}")).id)
            return accepted

        with ThreadPoolExecutor(len(fleets)) as pool:
            accepted = [name for names in pool.map(submit, range(len(fleets))) for name in names]
        assert len(accepted) == fleets[0].transport.depth() == 10
        everybody = [f"{place}-{number}" for place in range(8) for number in range(5)]
        assert sorted(fleets[0].authority.find(everybody)) == sorted(accepted)


def test_the_same_submitted_by_all_at_once_is_one(postgres_database: str) -> None:
    with contextlib.ExitStack() as stack:
        fleets = [stack.enter_context(contextlib.closing(opened(postgres_database))) for _ in range(6)]
        go = threading.Barrier(len(fleets))

        def submit(place: int) -> list[WorkItem]:
            go.wait(LIMIT_S)
            return [fleets[place].queue.submit(turn(f"{number}")) for number in range(10)]

        with ThreadPoolExecutor(len(fleets)) as pool:
            seen = list(pool.map(submit, range(len(fleets))))
        assert all([item.id for item in items] == [f"{number}" for number in range(10)] for items in seen)
        assert fleets[0].transport.depth() == 10


# -- ends and beginnings -----------------------------------------------------------------------------------------------


def test_an_end_is_written_down_acknowledged_and_unlocked_at_once(
    fleet: Fleet, stranger: Callable[[str], Any], postgres_database: str
) -> None:
    ((one, item),) = begin(fleet, "a")
    count = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = stranger(count)
    settled = settle(fleet, [ending(one, item)])
    assert stranger(count) - before == 1
    assert [each.state for each in settled.endings if isinstance(each, WorkItem)] == [SUCCEEDED]
    assert fleet.transport.depth() == 0
    with contextlib.closing(PostgresWorkItems(postgres_database)) as other:
        assert other.lock_sessions([("t", "of a")]) == (True,)


def test_ends_and_beginnings_go_together(fleet: Fleet, postgres_database: str) -> None:
    ((one, item),) = begin(fleet, "a")
    fleet.queue.submit(turn("b"))
    (next_one,) = fleet.transport.receive(9, LIMIT_S)
    settled = settle(fleet, [ending(one, item)], [opening(next_one)])
    assert (state(fleet, "a"), state(fleet, "b"), settled.locked) == (SUCCEEDED, RUNNING, (True,))
    assert fleet.transport.depth() == 1
    with contextlib.closing(PostgresWorkItems(postgres_database)) as other:
        assert other.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, False)


def test_who_lost_the_lease_acknowledges_nothing(fleet: Fleet, postgres_database: str) -> None:
    (one, item), (two, other_item) = begin(fleet, "a", "b")
    fleet.authority.perform([Defer(item.lease, "given back")])
    settled = settle(fleet, [ending(one, item), ending(two, other_item)])
    lost, fine = settled.endings
    assert isinstance(lost, LeaseLostError) and isinstance(fine, WorkItem)
    assert fleet.transport.depth() == 1, "the other's is gone"
    with contextlib.closing(PostgresWorkItems(postgres_database)) as other:
        assert other.lock_sessions([("t", "of a"), ("t", "of b")]) == (True, True)


def test_a_claim_that_is_refused_keeps_no_lock(fleet: Fleet, postgres_database: str) -> None:
    fleet.queue.submit(turn("a"))
    (one,) = fleet.transport.receive(9, LIMIT_S)
    (item,) = fleet.authority.perform([Claim("a", "t", "somebody", 60.0, starts=True)])
    assert isinstance(item, WorkItem)
    fleet.authority.perform([Succeed(item.lease)])
    settled = settle(fleet, openings=[opening(one)])
    assert isinstance(settled.openings[0], WrongStateError)
    assert fleet.transport.depth() == 1, "who claims in vain has not acknowledged"
    with contextlib.closing(PostgresWorkItems(postgres_database)) as other:
        assert other.lock_sessions([("t", "of a")]) == (True,)


def test_a_lock_that_somebody_holds_is_told(fleet: Fleet, postgres_database: str) -> None:
    fleet.queue.submit(turn("a"))
    (one,) = fleet.transport.receive(9, LIMIT_S)
    with contextlib.closing(PostgresWorkItems(postgres_database)) as other:
        assert other.lock_sessions([("t", "of a")]) == (True,)
        settled = settle(fleet, openings=[opening(one)])
        assert settled.locked == (False,)
        assert [each.state for each in settled.openings if isinstance(each, WorkItem)] == [RUNNING]
        assert fleet.authority.seize_sessions([("t", "of a")]) == (True,)


# -- a connection that breaks ------------------------------------------------------------------------------------------


class Shaky:
    """A fleet whose authority's next commit finds the connection reset (`before`), or is done and never answered."""

    def __init__(self, database: str, when: str, patch: pytest.MonkeyPatch) -> None:
        self._when, self._patch, self._commit = when, patch, PostgresRows.commit
        self.proxy = TcpProxy(lambda: dialled(database))
        place = conninfo_to_dict(database)
        through = make_conninfo("", **{**place, "host": "127.0.0.1", "port": self.proxy.port})
        self.authority, self.transport = PostgresWorkItems(through), PostgresTransport(database)
        self.joint = PostgresJoint(self.authority, self.transport)
        self.queue = TurnQueue(self.authority, self.transport, 100, joint=self.joint)

    def break_next(self) -> None:
        self._patch.setattr(PostgresRows, "commit", lambda *args: self._breaking(*args))

    def _breaking(self, *args: Any) -> list[Reply]:
        self._patch.setattr(PostgresRows, "commit", self._commit)
        link = self.proxy.last
        if self._when == "before":
            link.reset()
            return self._commit(*args)
        link.set(down=Flow.SWALLOW)
        seen = link.seen("down")

        def reset() -> None:
            link.wait_for("down", seen)
            link.reset()

        resetting = threading.Thread(target=reset)
        resetting.start()
        try:
            return self._commit(*args)
        finally:
            resetting.join(LIMIT_S)

    def close(self) -> None:
        self.authority.close()
        self.transport.close()
        self.proxy.close()


def dialled(database: str) -> socket.socket:
    place = conninfo_to_dict(database)
    host, port = str(place["host"]), int(place.get("port") or 5432)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{host}/.s.PGSQL.{port}")
    return connection


@pytest.fixture(params=["before", "after"])
def shaky(request: pytest.FixtureRequest, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shaky]:
    with contextlib.closing(Shaky(postgres_database, request.param, monkeypatch)) as made:
        made.queue.submit(turn("first"))
        yield made


def test_an_admission_that_was_cut_off_took_place_once(shaky: Shaky) -> None:
    shaky.break_next()
    item = shaky.queue.submit(turn("a"))
    assert (item.id, item.state, len(shaky.proxy.links)) == ("a", READY, 2)
    assert shaky.transport.depth() == 2
    assert len(shaky.transport.receive(9, 0.0)) == 2


def test_a_settlement_that_was_cut_off_took_place_once(shaky: Shaky, fleet: Fleet) -> None:
    (one,) = shaky.transport.receive(1, LIMIT_S)
    (item,) = shaky.joint.settle([], [opening(one)]).openings
    assert isinstance(item, WorkItem)
    shaky.queue.submit(turn("second"))
    (two,) = shaky.transport.receive(1, LIMIT_S)
    shaky.break_next()
    settled = shaky.joint.settle([ending(one, item)], [opening(two)])
    assert len(shaky.proxy.links) == 2
    assert [each.state for each in settled.endings if isinstance(each, WorkItem)] == [SUCCEEDED]
    assert [(each.state, each.attempt) for each in settled.openings if isinstance(each, WorkItem)] == [(RUNNING, 1)]
    assert len(shaky.authority.outcomes("first")) == 1 and shaky.transport.depth() == 1
    sessions = [("t", "of first"), ("t", "of second")]
    if not all(settled.locked):
        assert shaky.authority.seize_sessions(sessions[1:]) == (True,)
    shaky.authority.unlock_sessions([])  # whatever was locked before is locked again
    assert fleet.authority.lock_sessions(sessions) == (True, False)


def test_a_settlement_whose_fate_is_unknown_is_found_out_when_repeated(
    shaky: Shaky, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = shaky.transport.receive(1, LIMIT_S)
    (item,) = shaky.joint.settle([], [opening(one)]).openings
    assert isinstance(item, WorkItem)
    shaky.queue.submit(turn("second"))
    (two,) = shaky.transport.receive(1, LIMIT_S)
    asked = [ending(one, item)], [opening(two)]
    shaky.break_next()
    with monkeypatch.context() as away:
        away.setattr(PostgresWorkItems, "_find_out", out_of_reach)
        away.setattr(PostgresRows, "look", once(PostgresRows.look))
        with pytest.raises(FleetUnavailableError):
            shaky.joint.settle(*asked)
    settled = shaky.joint.settle(*asked)
    assert [each.state for each in settled.endings if isinstance(each, WorkItem)] == [SUCCEEDED]
    assert [(each.state, each.attempt) for each in settled.openings if isinstance(each, WorkItem)] == [(RUNNING, 1)]
    assert len(shaky.authority.outcomes("first")) == 1 and shaky.transport.depth() == 1
    if not all(settled.locked):
        assert shaky.authority.seize_sessions([("t", "of second")]) == (True,)
    assert fleet.authority.lock_sessions([("t", "of first"), ("t", "of second")]) == (True, False)


def out_of_reach(*_: Any) -> bool:
    raise FleetUnavailableError("the server is away")


def once(look: Callable[..., Any]) -> Callable[..., Any]:
    """The server is away after the first."""
    looks = iter([look])

    def looking(*args: Any) -> Any:
        return next(looks, out_of_reach)(*args)

    return looking
