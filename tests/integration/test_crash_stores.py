"""The crash campaign's eyes on the store: what was committed by whom is seen, and a commit that is picked is cut."""

from __future__ import annotations

import contextlib
import os
import random
import select
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from benchmarks.crash import stores
from benchmarks.crash.checker import judge
from benchmarks.crash.evidence import Evidence, Merge, Row
from benchmarks.crash.fates import DECKS, FAULTS, Means, dealt, killpoints, opens
from benchmarks.crash.faults import silence
from benchmarks.crash.plan import plan_of
from benchmarks.crash.stores import STORES, Kept, PostgresKept, Servers
from dispatch.errors import OwnedElsewhereError, OwnershipLostError, StoreUnavailableError
from dispatch.slice import SliceState
from dispatch.store import Changes, GraphRow, Store, open_store
from tests.conformance.store_rig import slice_row

LIMIT_S = 30.0
FIRST = Changes(GraphRow("g"), (slice_row("a", 1),))
NEXT = Changes(slices=(slice_row("b", 2, state=SliceState.RUNNING, attempt=3, hold="later"),))
NOTHING = Evidence((), (), (), (Merge("0", "", {}),), (), {}, (), (), (), frozenset(), {}, {}, ())


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with contextlib.closing(Servers()) as servers:
        yield servers


@pytest.fixture(params=STORES)
def kept(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Kept]:
    with servers.kept(request.param, tmp_path, "test") as kept:
        yield kept


@pytest.fixture
def database(servers: Servers, tmp_path: Path) -> Iterator[PostgresKept]:
    with servers.kept("postgresql", tmp_path, "test") as kept:
        assert isinstance(kept, PostgresKept)
        yield kept


def owned(url: str, *changes: Changes) -> Store:
    """A store whose graph is claimed, with these written."""
    store = open_store(url)
    store.claim("crash")
    for each in changes:
        store.write(each)
    return store


def found(kept: Kept) -> set[str]:
    """The rules that what the database tells of its commits breaks, apart from anything else."""
    steps, writers = kept.steps()
    plan = attrs.evolve(plan_of(1), jobs={})
    return {each.code for each in judge(plan, attrs.evolve(NOTHING, steps=steps, writers=writers))}


def test_rows_are_read_past_the_product(kept: Kept) -> None:
    assert kept.rows() == {}
    store = owned(kept.url, FIRST)
    before = kept.dump()
    store.write(NEXT)
    assert kept.rows() == {"a": Row("queued", 0, held=False), "b": Row("running", 3, held=True)}
    assert kept.dump() != before
    store.release()


def test_a_claim_that_is_made_old_may_be_followed(kept: Kept) -> None:
    former, heir = owned(kept.url, FIRST), open_store(kept.direct)
    with pytest.raises(OwnedElsewhereError):
        heir.claim("crash")
    assert kept.expire()
    heir.claim("crash")
    before = kept.dump()
    with pytest.raises(OwnershipLostError):
        former.write(NEXT)
    assert kept.dump() == before
    heir.release()


def test_a_claim_is_not_made_old_while_its_owner_is_in_the_middle_of_a_write(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "LOCKED_S", 0.01)
    with servers.kept("sqlite", tmp_path, "test") as kept:
        owned(kept.url, FIRST).release()
        with contextlib.closing(sqlite3.connect(tmp_path / "graphs.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            assert not kept.expire()
            writer.execute("COMMIT")
        assert kept.expire()


def test_looking_leaves_a_file_as_the_crash_left_it(servers: Servers, tmp_path: Path) -> None:
    with servers.kept("sqlite", tmp_path, "test") as kept:
        store = owned(kept.url, FIRST)
        files = {path: path.read_bytes() for path in tmp_path.iterdir()}
        assert kept.rows().keys() == {"a"}
        assert files == {path: path.read_bytes() for path in tmp_path.iterdir()}
        store.release()


def test_the_database_tells_of_each_batch_and_each_refusal(database: PostgresKept) -> None:
    former = owned(database.url, FIRST, NEXT)
    former.renew()
    database.expire()
    heir = owned(database.direct, NEXT)
    refusals = database.refusals()
    with pytest.raises(OwnershipLostError):
        former.write(Changes(slices=(slice_row("c", 3),)))
    assert database.refusals() == refusals + 1
    steps, writers = database.steps()
    assert [(step.epoch, step.batch) for step in steps] == [(1, 0), (1, 1), (1, 2), (1, 2), (1, 2), (2, 0), (2, 1)]
    assert set(writers) == {steps[1].transaction, steps[2].transaction, steps[6].transaction}
    assert found(database) == set()
    heir.release()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dispatch.slices SET state = 'merged'",
        "DELETE FROM dispatch.slices",
        "UPDATE dispatch.claims SET written = written + 2",
        "UPDATE dispatch.claims SET epoch = epoch - 1",
    ],
)
def test_whoever_writes_past_the_owner_is_seen(database: PostgresKept, statement: str) -> None:
    owned(database.url, FIRST).release()
    database.server.execute(statement, database.database)
    assert found(database) == {"batches"}


@pytest.mark.parametrize(("moment", "incarnation"), [("before", 2), ("after", 1)])
def test_a_connection_is_cut_around_the_commit_that_was_picked(
    database: PostgresKept, moment: str, incarnation: int
) -> None:
    """Which connection it was that committed the batch tells whether the first one had got through."""
    store = owned(database.url, FIRST)
    database.tap.arm(moment, 2)
    store.renew()
    assert not select.select([database.tap.struck], [], [], 0)[0]
    store.write(NEXT)
    assert database.tap.disarm()
    assert not database.tap.disarm()
    steps, _ = database.steps()
    assert next(step.incarnation for step in steps if step.batch == 2) == incarnation
    assert found(database) == set()
    store.release()


def test_what_is_held_back_gets_there_in_the_end(database: PostgresKept) -> None:
    store = owned(database.url, FIRST)
    moved = database.moved()
    with silence(database), pytest.raises(StoreUnavailableError):
        store.renew()
    deadline = time.monotonic() + LIMIT_S
    while database.moved() == moved:
        assert time.monotonic() < deadline
    with contextlib.suppress(StoreUnavailableError):
        store.release()


@pytest.mark.parametrize("kind", STORES)
def test_every_means_is_in_the_deck_and_every_kill_point_has_its_turn(kind: str) -> None:
    faults = FAULTS if kind == "postgresql" else (Means.SUSPENDED,)
    assert {means for means in DECKS[kind] if means in FAULTS} == set(faults)
    places: Counter[str] = Counter()
    for seed in range(80):
        fates = dealt(random.Random(seed), kind, seed)
        places.update(fate.place for _, fate in zip(range(14), fates, strict=False) if fate.means is Means.STORE)
    points = killpoints(kind)
    assert set(places) == set(points)
    assert any(map(opens, points))
    drawn = [places[name] for name in points if not opens(name)]
    assert min(drawn) >= max(drawn) / 2


def test_a_tap_that_nobody_armed_passes_everything_on(database: PostgresKept) -> None:
    owned(database.url, FIRST, NEXT).release()
    assert database.rows().keys() == {"a", "b"}
    with pytest.raises(BlockingIOError):
        os.eventfd_read(database.tap.struck)


def test_a_file_that_is_no_store_yet_has_no_rows(tmp_path: Path, servers: Servers) -> None:
    with servers.kept("sqlite", tmp_path, "test") as kept:
        sqlite3.connect(tmp_path / "graphs.db").close()
        assert kept.rows() == {}
