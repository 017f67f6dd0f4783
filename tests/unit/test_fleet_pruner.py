"""What workers prune, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.commands import Cancel, Submit
from harness.fleet.pruner import DAY_S, Pruner
from harness.fleet.work_item import Submission

LIMIT_S = 20.0


def run(loop: Callable[[], None]) -> None:
    loop()


def ended(authority: MemoryWorkItems, name: str) -> None:
    authority.perform([Submit(Submission(name, "t", name, "k")), Cancel(name, "t", "not wanted")])


def test_what_ended_longer_ago_than_it_is_kept_goes_by_the_authoritys_clock() -> None:
    now = [1e9]
    authority = MemoryWorkItems(lambda: now[0])
    ended(authority, "old")
    now[0] += 2 * DAY_S
    ended(authority, "new")
    authority.perform([Submit(Submission("live", "t", "s", "k"))])
    now[0] += 1.5 * DAY_S
    assert Pruner(authority, 3.0, run).prune() == 1
    assert authority.find(["old", "new", "live"]).keys() == {"new", "live"}


def test_it_prunes_every_now_and_then_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.fleet.pruner.EVERY_S", 0.001)
    pruned = threading.Semaphore(0)

    class Counted(MemoryWorkItems):
        def prune(self, before: float) -> int:
            pruned.release()
            return super().prune(before)

    pruner = Pruner(Counted(), 1.0, run)
    pruner.start()
    assert all(pruned.acquire(timeout=LIMIT_S) for _ in range(3))
    pruner.stop()
    pruner._thread.join(LIMIT_S)
    assert not pruner._thread.is_alive()


def test_nothing_is_pruned_where_all_is_kept() -> None:
    pruner = Pruner(MemoryWorkItems(), 0.0, run)
    pruner.start()
    assert not pruner._thread.is_alive()
