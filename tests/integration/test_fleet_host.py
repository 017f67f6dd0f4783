"""A graph's sessions on a fleet: what a worker does with them, and what comes to main."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fleet.work_item import WorkItemState
from harness.session import SessionPhase
from tests.integration.fleet_shop import FleetShop, fleet_shop
from tests.integration.workshop import assignment, until


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[FleetShop]:
    with fleet_shop(tmp_path) as made:
        yield made


def test_what_a_worker_did_is_merged_here_once(shop: FleetShop) -> None:
    shop.worker()
    states = shop.run(
        assignment("one", "echo 1 >one.txt"),
        assignment("two", "echo 2 >two.txt && git add two.txt && git commit -qm two && echo 3 >three.txt"),
    )
    assert [state.phase for state in states] == [SessionPhase.MERGED] * 2
    assert sorted(shop.repo.merges()) == ["one", "two"]
    assert set(shop.repo.files()) == {"a.txt", "one.txt", "two.txt", "three.txt"}
    shop.repo.check_sound()
    until(lambda: shop.branches() == [])


def test_one_that_changes_nothing_is_merged_without_a_commit(shop: FleetShop) -> None:
    shop.worker()
    (state,) = shop.run(assignment("idle", "true"))
    assert (state.phase, state.detail, state.turns) == (SessionPhase.MERGED, "no change", 1)
    assert shop.repo.merges() == []
    assert shop.branches() == []


def test_an_attempt_begins_with_what_others_have_merged(shop: FleetShop) -> None:
    shop.worker()
    shop.run(assignment("one", "echo 1 >one.txt"))
    (state,) = shop.run(assignment("two", "cp one.txt two.txt"))
    assert state.phase is SessionPhase.MERGED
    assert shop.repo.show("main", "two.txt") == "1"


def test_two_that_conflict_are_told_so_by_the_merge(shop: FleetShop) -> None:
    shop.worker()

    def meet(this: str, other: str) -> str:
        return f"touch {shop.marks}/{this}; until test -e {shop.marks}/{other}; do sleep 0.02; done; "

    states = shop.run(
        assignment("one", meet("one", "two") + "echo 1 >a.txt"),
        assignment("two", meet("two", "one") + "echo 2 >a.txt"),
    )
    assert sorted(state.phase.value for state in states) == ["closed", "merged"]
    (closed,) = [state for state in states if state.phase is SessionPhase.CLOSED]
    assert closed.detail == "merge conflict in a.txt"
