"""The decision, the waiting tasks behind it, and what a look at them costs."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from listsched import Waiting, pick


class Opaque:
    """A task that can't be compared with another."""


class Desk:
    """Starts tasks that hold a lock each, and counts what was looked at."""

    def __init__(self, locks: dict[str, str | None]) -> None:
        self.locks = locks
        self.held: set[str] = set()
        self.looks: list[str] = []

    def blocked(self, task: str) -> Hashable | None:
        self.looks.append(task)
        lock = self.locks[task]
        return lock if lock in self.held else None

    def start(self, task: str) -> None:
        lock = self.locks[task]
        if lock is not None:
            self.held.add(lock)

    def pick(self, waiting: Waiting[str], places: int) -> list[str]:
        self.looks.clear()
        return pick(waiting, places, self.blocked, self.start)

    def free(self, waiting: Waiting[str], lock: str) -> None:
        self.held.discard(lock)
        waiting.wake(lock)


def free(task: object) -> None:
    """Nothing blocks."""


def ignore(task: object) -> None:
    """Nothing to do on a start."""


@pytest.mark.parametrize(
    ("places", "started", "left"),
    [(-1, "", "abcd"), (0, "", "abcd"), (1, "a", "bcd"), (3, "abc", "d"), (4, "abcd", ""), (9, "abcd", "")],
)
def test_best_first_while_a_place_is_free(places: int, started: str, left: str) -> None:
    waiting: Waiting[str] = Waiting()
    for task in "cadb":
        waiting.put(task, ord(task))
    assert "".join(pick(waiting, places, free, ignore)) == started
    assert "".join(waiting.in_order()) == left
    assert len(waiting) == len(left)
    assert [task in waiting for task in "abcd"] == [task in left for task in "abcd"]


def test_a_blocked_task_holds_no_other_back_and_keeps_its_place() -> None:
    desk = Desk({"a": "lock", "b": None, "c": None})
    desk.held.add("lock")
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, ord(task))
    assert desk.pick(waiting, 1) == ["b"]
    assert waiting.in_order() == ["a", "c"]
    desk.free(waiting, "lock")
    assert desk.pick(waiting, 2) == ["a", "c"]


def test_what_starts_blocks_what_comes_after_it_in_the_same_pick() -> None:
    desk = Desk({"a": "lock", "b": "lock", "c": None})
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, ord(task))
    assert desk.pick(waiting, 3) == ["a", "c"]


def test_a_parked_task_is_not_looked_at_before_it_is_woken() -> None:
    desk = Desk({"a": "lock", "b": "lock", "c": "lock"})
    desk.held.add("lock")
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, ord(task))
    assert desk.pick(waiting, 3) == []
    assert desk.looks == ["a", "b", "c"]
    assert desk.pick(waiting, 3) == []
    assert desk.looks == []
    waiting.wake("another")
    assert desk.pick(waiting, 3) == []
    assert desk.looks == []
    waiting.wake("lock")  # too soon: one look finds out for all of them
    assert desk.pick(waiting, 3) == []
    assert desk.looks == ["a"]


def test_ten_thousand_tasks_behind_one_lock_cost_two_looks_each() -> None:
    tasks = [f"{n:05}" for n in range(10_000)]
    desk = Desk(dict.fromkeys(tasks, "lock"))
    waiting: Waiting[str] = Waiting()
    for task in tasks:
        waiting.put(task, task)
    assert desk.pick(waiting, 8) == tasks[:1]
    looks = 0
    for task in tasks[1:]:
        desk.free(waiting, "lock")
        assert desk.pick(waiting, 8) == [task]
        looks += len(desk.looks)
    assert looks < 2 * len(tasks)


def test_ten_thousand_twins_cost_one_look_a_turn() -> None:
    tasks = [f"{n:05}" for n in range(10_000)]
    desk = Desk(dict.fromkeys(tasks, "lock"))
    waiting: Waiting[str] = Waiting()
    for task in reversed(tasks[5_000:]):
        waiting.put(task, task, "twins")
    for task in tasks[:5_000]:
        waiting.put(task, task, "twins")
    desk.held.add("lock")
    assert desk.pick(waiting, 8) == []
    assert waiting.in_order() == tasks
    looks = 0
    for task in tasks:
        desk.free(waiting, "lock")
        assert desk.pick(waiting, 8) == [task]
        looks += len(desk.looks)
    assert looks < 3 * len(tasks)


def test_only_the_best_twin_is_looked_at() -> None:
    tasks = list("abcdef")
    desk = Desk(dict.fromkeys(tasks, "lock"))
    waiting: Waiting[str] = Waiting()
    for task in tasks:
        waiting.put(task, task, "twins")
    desk.held.add("lock")
    assert desk.pick(waiting, 8) == []
    assert desk.looks == ["a"]
    waiting.discard("a")
    assert desk.pick(waiting, 8) == []
    assert desk.looks == ["b"]
    waiting.put("b", "z", "twins")
    assert desk.pick(waiting, 8) == []
    assert desk.looks == ["c"]
    waiting.put("f", "a", "twins")
    assert desk.pick(waiting, 8) == []
    assert desk.looks == ["f"]
    waiting.rekey(lambda task: -ord(task))
    assert desk.pick(waiting, 8) == []
    assert desk.looks == ["f"]
    desk.free(waiting, "lock")
    assert desk.pick(waiting, 8) == ["f"]


def test_the_next_twin_is_shown_though_the_one_between_has_gone() -> None:
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, task, "twins")
    waiting.discard("b")
    waiting.discard("a")
    assert pick(waiting, 3, free, ignore) == ["c"]


def test_a_free_resource_starts_all_its_waiters_if_they_do_not_hold_it() -> None:
    waiting: Waiting[int] = Waiting()
    for task in range(5):
        waiting.put(task, task)
    assert pick(waiting, 5, lambda task: "room", ignore) == []
    waiting.wake("room")
    assert pick(waiting, 4, free, ignore) == [0, 1, 2, 3]
    assert pick(waiting, 4, free, ignore) == [4]


def test_the_next_waiter_comes_when_the_best_turns_out_to_be_blocked_by_something_else() -> None:
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, task)
    assert pick(waiting, 3, lambda task: "x", ignore) == []
    waiting.wake("x")
    assert pick(waiting, 1, lambda task: "y" if task == "a" else None, ignore) == ["b"]
    waiting.wake("y")
    assert pick(waiting, 3, free, ignore) == ["a", "c"]


@pytest.mark.parametrize("gone", ["discarded", "under another key"])
def test_the_next_waiter_comes_when_the_best_is_gone_before_it_was_looked_at(gone: str) -> None:
    waiting: Waiting[str] = Waiting()
    for task in "abc":
        waiting.put(task, task)
    assert pick(waiting, 3, lambda task: "x", ignore) == []
    waiting.wake("x")
    if gone == "discarded":
        waiting.discard("a")
        assert pick(waiting, 3, free, ignore) == ["b", "c"]
    else:
        waiting.put("a", "d")
        assert pick(waiting, 3, free, ignore) == ["b", "c", "a"]


def test_a_parked_task_with_a_new_key_is_looked_at_afresh() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put("a", 1)
    waiting.put("b", 2)
    assert pick(waiting, 2, lambda task: "x", ignore) == []
    waiting.put("b", 0)
    assert pick(waiting, 2, free, ignore) == ["b"]
    assert waiting.in_order() == ["a"]


def test_rekeying_looks_at_all_afresh_in_the_new_order() -> None:
    waiting: Waiting[int] = Waiting()
    for task in range(6):
        waiting.put(task, task)
    assert pick(waiting, 6, lambda task: "x" if task % 2 else "y", ignore) == []
    waiting.rekey(lambda task: -task)
    assert waiting.in_order() == [5, 4, 3, 2, 1, 0]
    assert pick(waiting, 6, free, ignore) == [5, 4, 3, 2, 1, 0]


def test_a_task_that_was_discarded_does_not_start_and_one_that_never_waited_may_be_discarded() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put("a", 1)
    waiting.discard("a")
    waiting.discard("b")
    assert pick(waiting, 2, free, ignore) == []
    waiting.put("a", 1)
    assert pick(waiting, 2, free, ignore) == ["a"]


def test_tasks_are_never_compared_though_a_key_comes_back() -> None:
    waiting: Waiting[Opaque] = Waiting()
    before, after = Opaque(), Opaque()
    waiting.put(before, (1,))
    waiting.discard(before)
    waiting.put(after, (1,))
    assert pick(waiting, 2, free, ignore) == [after]


def test_resources_are_never_compared_though_a_key_comes_back() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.put("a", (1,))
    assert pick(waiting, 1, lambda task: Opaque, ignore) == []
    waiting.wake(Opaque)
    waiting.put("a", (2,))
    waiting.put("a", (1,))
    assert pick(waiting, 1, free, ignore) == ["a"]


def test_tasks_put_while_others_start_take_their_turn() -> None:
    waiting: Waiting[int] = Waiting()

    def start(task: int) -> None:
        for _ in range(200):  # enough to have the stale entries cleaned up under way
            waiting.put(999, 999)
        if task < 5:
            waiting.put(task + 1, task + 1)

    waiting.put(0, 0)
    assert pick(waiting, 6, free, start) == [0, 1, 2, 3, 4, 5]
    assert waiting.in_order() == [999]


@pytest.mark.parametrize("twin", [None, "twins"])
def test_new_keys_leave_no_rubbish_behind(twin: str | None) -> None:
    waiting: Waiting[int] = Waiting()
    for turn in range(1_000):
        for task in range(10):
            waiting.put(task, (turn * (-1) ** task, task), twin)
        pick(waiting, 10, lambda task: "x" if task % 3 else "y", ignore)
        for _ in range(5):
            waiting.wake("x")
        entries = len(waiting._ready) + sum(map(len, (*waiting._parked.values(), *waiting._twins.values())))
        assert entries <= 2 * len(waiting) + 64
        assert entries == waiting._entries


def test_resources_leave_no_rubbish_behind() -> None:
    waiting: Waiting[int] = Waiting()
    for resource in range(1_000):
        waiting.put(resource, resource)
        assert pick(waiting, 1, lambda task: ("resource", task), ignore) == []
        waiting.wake(("resource", resource))
        assert pick(waiting, 1, free, ignore) == [resource]
    assert not waiting._parked
