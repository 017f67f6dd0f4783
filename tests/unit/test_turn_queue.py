"""What a queue of turns writes down of the deliveries that were admitted, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.commands import Claim, Command, Defer, Deliver
from harness.fleet.ports import Result
from harness.fleet.queue import _BESIDE, _KEPT_NOTES, HANDED_S, NOTED_S, TurnQueue
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.work_item import Submission, WorkItem


class Watched(MemoryWorkItems):
    """Keeps how many notes each transaction had, of those that had any, and how many commands."""

    def __init__(self) -> None:
        super().__init__(lambda: 1000.0)
        self.transactions: list[tuple[int, int]] = []

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        notes = sum(isinstance(command, Deliver) for command in commands)
        if notes:
            self.transactions.append((notes, len(commands)))
        return super().perform(commands)


class Desk:
    """A queue whose clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.items = Watched()
        self.queue = TurnQueue(self.items, MemoryTransport(), 100_000, clock=lambda: self.now)

    def submit(self, *names: str) -> None:
        self.queue.submit_many([Submission(name, "t", name, "k") for name in names])

    def delivered(self, *names: str) -> list[bool]:
        found = self.items.find(names)
        return [found[name].delivered for name in names]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def numbered(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_a_delivery_is_noted_long_before_a_pump_would_see_to_it() -> None:
    assert 0 < NOTED_S <= HANDED_S / 2


def test_what_was_admitted_a_moment_ago_is_not_written_down(desk: Desk) -> None:
    desk.submit(*numbered(1000))
    desk.now += NOTED_S
    desk.submit("later")
    assert desk.items.transactions == []


def test_what_waits_is_written_down_with_what_comes_next(desk: Desk) -> None:
    desk.submit("a")
    desk.now += NOTED_S + 1
    desk.submit("b")
    assert desk.items.transactions == [(1, 2)]
    assert desk.delivered("a", "b") == [True, False]


def test_what_has_begun_by_then_stays_as_it_is(desk: Desk) -> None:
    desk.submit("a")
    (begun,) = desk.items.perform([Claim("a", "t", "w", 60.0, starts=True)])
    desk.now += NOTED_S + 1
    desk.submit("b")
    assert desk.items.find(["a"])["a"] == begun


def test_a_note_of_a_delivery_that_was_used_up_is_void(desk: Desk) -> None:
    desk.submit("a")
    (begun,) = desk.items.perform([Claim("a", "t", "w", 60.0, starts=True)])
    assert isinstance(begun, WorkItem)
    desk.items.perform([Defer(begun.lease, "not now")])
    desk.queue.flush()
    assert desk.delivered("a") == [False], "it needs another one, and nobody else would see to that"


def test_what_comes_next_is_not_kept_waiting_by_many_notes(desk: Desk) -> None:
    names = numbered(3 * _BESIDE)
    desk.submit(*names)
    desk.now += NOTED_S + 1
    desk.submit("next")
    assert desk.items.transactions[0] == (_BESIDE, _BESIDE + 1)
    assert sum(notes for notes, _ in desk.items.transactions) == 3 * _BESIDE + 1, "the others by themselves, at once"
    assert all(desk.delivered(*names))


def test_all_is_written_down_when_it_is_asked_for(desk: Desk) -> None:
    desk.submit("a", "b")
    desk.queue.flush()
    assert desk.delivered("a", "b") == [True, True]
    desk.queue.flush()
    assert desk.items.transactions == [(2, 2)]


def test_there_are_never_more_notes_than_can_be_kept(desk: Desk) -> None:
    desk.submit(*numbered(_KEPT_NOTES))
    assert desk.items.transactions == []
    desk.submit("one more")
    assert desk.items.transactions == [(_KEPT_NOTES + 1, _KEPT_NOTES + 1)]
