"""Chores in threads, and a follower that looks when it is told to."""

from __future__ import annotations

import logging
import queue
import threading

import pytest

from harness.fleet import follower as follower_module
from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.chores import Chores
from harness.fleet.commands import Submit
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.follower import Follower
from harness.fleet.ports import Watch
from harness.fleet.work_item import Submission

LIMIT_S = 30.0


def test_chores_that_came_before_the_start_are_done_in_their_order() -> None:
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    chores = Chores("chore", 1)
    for number in range(3):
        chores.do(lambda number=number: done.put(number))  # type: ignore[misc]
    chores.start()
    assert [done.get(timeout=LIMIT_S) for _ in range(3)] == [0, 1, 2]
    assert chores.close(LIMIT_S)


def test_a_chore_is_done_again_for_as_long_as_it_asks_for_it() -> None:
    tries: list[int] = []
    done = threading.Event()

    def chore() -> float | None:
        tries.append(len(tries))
        if len(tries) < 3:
            return 0.0
        done.set()
        return None

    chores = Chores("chore", 2)
    chores.start()
    chores.do(chore)
    assert done.wait(LIMIT_S)
    assert chores.close(LIMIT_S)
    assert tries == [0, 1, 2]


def test_one_that_waits_keeps_nobody_and_the_earliest_due_comes_first() -> None:
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    chores = Chores("chore", 1)
    chores.do(lambda: done.put("never"), 1000.0)
    chores.do(lambda: done.put("later"), 0.05)
    chores.do(lambda: done.put("now"))
    chores.start()
    assert [done.get(timeout=LIMIT_S) for _ in range(2)] == ["now", "later"]
    assert chores.close(LIMIT_S), "one that is not due yet is left undone"
    assert done.empty()


def test_an_error_ends_one_chore_and_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def broken() -> None:
        raise ValueError("broken")

    chores = Chores("chore", 1)
    chores.start()
    chores.do(broken)
    chores.do(done.set)
    assert done.wait(LIMIT_S)
    assert chores.close(LIMIT_S)
    assert "a chore failed" in caplog.text


def test_closing_waits_for_what_is_under_way_and_says_if_that_takes_too_long() -> None:
    begun, go = threading.Event(), threading.Event()

    def chore() -> None:
        begun.set()
        go.wait(LIMIT_S)

    chores = Chores("chore", 1)
    chores.start()
    chores.do(chore)
    assert begun.wait(LIMIT_S)
    assert not chores.close(0.0)
    chores.do(go.set)  # too late: nobody does it
    assert not chores.close(0.05)
    go.set()
    assert chores.close(LIMIT_S)


def test_those_that_were_never_started_are_closed_at_once() -> None:
    assert Chores("chore", 3).close(LIMIT_S)


def test_a_follower_looks_at_the_start_and_when_something_has_changed() -> None:
    items = MemoryWorkItems()
    looks: queue.SimpleQueue[int] = queue.SimpleQueue()
    follower = Follower(items.watch, lambda: looks.put(len(items.items)))
    follower.start()
    assert looks.get(timeout=LIMIT_S) == 0
    items.perform([Submit(Submission("a", "t", "s", "k"))])
    assert looks.get(timeout=LIMIT_S) == 1
    follower.close()
    items.perform([Submit(Submission("b", "t", "s", "k"))])
    assert looks.empty()
    follower.close()


def test_a_follower_gets_over_what_is_out_of_reach_and_over_a_look_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower_module, "AGAIN_S", 0.01)
    caplog.set_level(logging.WARNING)
    items = MemoryWorkItems()
    troubles: list[Exception] = [FleetUnavailableError("away"), ValueError("odd")]
    opened: list[Watch] = []
    well = threading.Event()

    def watch() -> Watch:
        if len(troubles) == 2:
            raise troubles.pop()
        opened.append(items.watch())
        return opened[-1]

    def look() -> None:
        if troubles:
            raise troubles.pop()
        well.set()

    follower = Follower(watch, look)
    follower.start()
    assert well.wait(LIMIT_S)
    follower.close()
    assert len(opened) == 2, "a look-out is opened anew after a failure"
    assert "the fleet can't be followed for now: away" in caplog.text


def test_a_follower_that_was_never_started_is_closed_at_once() -> None:
    looked: list[None] = []
    Follower(MemoryWorkItems().watch, lambda: looked.append(None)).close()
    assert looked == []
