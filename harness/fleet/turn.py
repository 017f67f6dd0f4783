"""The turns that a worker has under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import attrs

from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.ports import Receipt


@attrs.frozen(eq=False)
class Turn:
    """One attempt: its delivery, its session (tenant and id), its lease, and whether the session's lock was free.

    `begun_at` is by this machine's monotonic clock.
    """

    receipt: Receipt
    session: tuple[str, str]
    guard: WorkItemLeaseGuard
    is_locked: bool = True
    begun_at: float = attrs.field(factory=time.monotonic)

    @property
    def item_id(self) -> str:
        return self.guard.lease.item_id


class Turns:
    """Of one worker. May be used from any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._fewer = threading.Condition(self._mutex)
        self._turns: dict[Turn, None] = {}

    def __len__(self) -> int:
        with self._mutex:
            return len(self._turns)

    def all(self) -> tuple[Turn, ...]:
        with self._mutex:
            return tuple(self._turns)

    def add(self, turn: Turn) -> None:
        with self._mutex:
            self._turns[turn] = None

    def remove(self, turns: Iterable[Turn]) -> None:
        with self._fewer:
            for turn in turns:
                self._turns.pop(turn, None)
            self._fewer.notify_all()

    def wait_for_none(self, seconds: float) -> bool:
        """Whether there is none within so many seconds."""
        with self._fewer:
            return self._fewer.wait_for(lambda: not self._turns, seconds)
