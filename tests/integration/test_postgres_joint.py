"""An authority and a queue in one PostgreSQL database: how many transactions that takes, and connections that break."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from harness.database.postgres_wire import Result as Reply
from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.postgres_rows import PostgresRows
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.opening import Fleet
from harness.fleet.postgres_joint import PostgresJoint
from harness.fleet.queue import TurnQueue
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.work_item import WorkItem, WorkItemState
from tests.conformance.joint_rig import LIMIT_S, ending, opened, opening, settle, turn, url_of
from tests.tcp_proxy import Flow, TcpProxy

READY, RUNNING, SUCCEEDED = WorkItemState.READY, WorkItemState.RUNNING, WorkItemState.SUCCEEDED
TRANSACTIONS = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"  #: that wrote something, so far


@pytest.fixture
def fleet(postgres_database: str) -> Iterator[Fleet]:
    with opened(url_of(postgres_database)) as made:
        yield made


@pytest.fixture
def stranger(postgres_database: str) -> Iterator[Callable[[str], Any]]:
    """The single value of a query, asked by somebody else."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:

        def ask(query: str) -> Any:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

        yield ask


def test_a_turn_is_admitted_in_one_transaction_and_settled_in_one(fleet: Fleet, stranger: Callable[[str], Any]) -> None:
    fleet.queue.submit(turn("before"))  # what is made once is made
    before = stranger(TRANSACTIONS)
    fleet.queue.submit(turn("a"))
    assert stranger(TRANSACTIONS) - before == 1
    one, other = fleet.transport.receive(2, LIMIT_S)
    before = stranger(TRANSACTIONS)
    item, _ = settle(fleet, openings=[opening(one), opening(other)]).openings
    assert isinstance(item, WorkItem)
    assert stranger(TRANSACTIONS) - before == 1
    settle(fleet, [ending(one, item)])
    assert stranger(TRANSACTIONS) - before == 2
    assert fleet.transport.depth() == 1


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
    shaky.authority.unlock_sessions([])  # meanwhile what was locked before is locked again
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
