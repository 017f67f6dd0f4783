"""Whose turn it is to merge."""

from __future__ import annotations

from harness.local.site import MergeQueue


class Waiter:
    def __init__(self) -> None:
        self.turns = 0

    def __call__(self) -> None:
        self.turns += 1


def test_first_come_first_served_one_at_a_time() -> None:
    queue, waiters = MergeQueue(), [Waiter() for _ in range(4)]
    for waiter in waiters:
        queue.join(waiter)
    for number, waiter in enumerate(waiters):
        assert [w.turns for w in waiters] == [1] * (number + 1) + [0] * (3 - number)
        queue.leave(waiter)


def test_who_gives_its_place_up_is_passed_over() -> None:
    queue, (a, b, c) = MergeQueue(), [Waiter() for _ in range(3)]
    for waiter in (a, b, c):
        queue.join(waiter)
    queue.leave(b)
    assert (a.turns, b.turns, c.turns) == (1, 0, 0)
    queue.leave(a)
    assert (a.turns, b.turns, c.turns) == (1, 0, 1)


def test_a_queue_that_ran_empty_serves_the_next_at_once() -> None:
    queue, (a, b) = MergeQueue(), [Waiter() for _ in range(2)]
    queue.join(a)
    queue.leave(a)
    queue.join(b)
    assert (a.turns, b.turns) == (1, 1)
