"""The suite that defines the locks on sessions, on every adapter that several processes can use."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from harness.fleet.ports import Authority
from tests.conformance.work_items_rig import ADAPTERS, Rig, emptied_database

A, B, C, D = (("t", name) for name in ("a", "b", "c", "Ünï d"))


@pytest.fixture(params=["sqlite", "postgres"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(functools.partial(ADAPTERS[request.param], tmp_path), by_hand=False)
    yield rig
    rig.close()


@pytest.fixture
def ours(rig: Rig) -> Authority:
    return rig.authority


@pytest.fixture
def theirs(rig: Rig) -> Authority:
    return rig.onlooker


def test_what_one_holds_no_other_gets(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([A, D]) == (True, True)
    assert theirs.lock_sessions([A, B, D, C]) == (False, True, False, True)
    assert ours.lock_sessions([B, C]) == (False, False)
    theirs.unlock_sessions([C, B])
    assert ours.lock_sessions([C, B]) == (True, True)


def test_what_the_caller_holds_is_not_locked_again(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([A]) == (True,)
    assert ours.lock_sessions([B, A]) == (True, False)
    ours.unlock_sessions([A])
    assert theirs.lock_sessions([A]) == (True,), "it was locked once"


def test_of_one_that_is_named_twice_the_first_gets_it(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([A, B, A]) == (True, True, False)
    ours.unlock_sessions([A, B, A])
    assert theirs.lock_sessions([A, B]) == (True, True)


def test_who_holds_nothing_lets_nothing_go(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([]) == ()
    assert theirs.lock_sessions([A]) == (True,)
    ours.unlock_sessions([A, B])
    assert ours.lock_sessions([A, B]) == (False, True)


def test_it_ends_with_its_client(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([A, B]) == (True, True)
    ours.close()
    assert theirs.lock_sessions([A, B]) == (True, True)


def test_who_holds_it_beside_the_lease_is_cut_off(ours: Authority, theirs: Authority) -> None:
    assert ours.lock_sessions([A]) == (True,)
    assert theirs.seize_sessions([A, B]) == (True, True)
    assert ours.lock_sessions([A, C]) == (False, True)
    assert theirs.seize_sessions([A]) == (False,), "held by the caller already"


def test_after_a_lost_connection_they_are_taken_again(tmp_path: Path) -> None:
    rig = Rig(functools.partial(ADAPTERS["postgres"], tmp_path))
    conninfo = emptied_database()
    try:
        assert rig.authority.lock_sessions([A, B]) == (True, True)
        with psycopg.connect(conninfo, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert rig.onlooker.lock_sessions([B]) == (True,), "nobody else was quicker"
        assert rig.authority.lock_sessions([C]) == (True,)
        assert rig.onlooker.lock_sessions([A, C]) == (False, False)
        rig.authority.unlock_sessions([A, B, C])
        assert rig.onlooker.lock_sessions([A, B, C]) == (True, False, True)
    finally:
        rig.close()
