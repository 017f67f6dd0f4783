"""A graph's turns on the adapters that last: what ends is heard of at once, and nothing is lost on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.fleet.authority.postgres import PostgresWorkItems
from harness.fleet.authority.sqlite import SqliteWorkItems
from harness.fleet.ports import Authority, Transport
from harness.fleet.transport.postgres import PostgresTransport
from harness.fleet.transport.sqlite import SqliteTransport
from harness.fleet.work_item import WorkItemState
from harness.session import SessionPhase
from tests import postgres_server
from tests.integration.fleet_shop import FleetShop, fleet_shop
from tests.integration.workshop import assignment

Opened: TypeAlias = Callable[[Path], tuple[Authority, Transport]]


def files(folder: Path) -> tuple[Authority, Transport]:
    return SqliteWorkItems(folder / "state.db"), SqliteTransport(folder / "queue.db")


def server(folder: Path) -> tuple[Authority, Transport]:
    database = postgres_server.databases().new()
    return PostgresWorkItems(database), PostgresTransport(database)


@pytest.fixture(params=[files, server], ids=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetShop]:
    opened: Opened = request.param
    authority, transport = opened(tmp_path)
    with (
        contextlib.closing(authority),
        contextlib.closing(transport),
        fleet_shop(tmp_path, authority, transport) as made,
    ):
        yield made


def test_a_graph_runs_and_is_taken_up_again(shop: FleetShop) -> None:
    shop.worker(slots=3)
    (state,) = shop.run(assignment("one", "echo 1 >one.txt"))
    assert state.phase is SessionPhase.MERGED
    shop.submit(
        assignment("two", shop.gate("up", "go") + "cp one.txt two.txt"),
        assignment("three", "trap 'exit 0' TERM; " + shop.gate("there", "never")),
    )
    shop.reached("up")
    shop.reached("there")
    assert shop.send("two@1", "hurry") == "turn-2"
    assert list(shop.restart("two@1", "three@1", "four@1")) == ["two@1", "three@1"]
    shop.cancel("three@1")
    assert shop.reports.end("three@1").phase is SessionPhase.CANCELED
    shop.open("go")
    state = shop.reports.end("two@1")
    assert (state.phase, state.turns) == (SessionPhase.MERGED, 2)
    assert shop.repo.merges() == ["one", "two"]
    assert shop.item("two@1").state is WorkItemState.SUCCEEDED
