"""How often a keeper looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.keeper import PAUSE_S, Keeper
from harness.fleet.ports import WorkerPresence
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.turn import Turns
from harness.fleet.work_item import WorkItem

LIMIT_S = 20.0
LOOKS = 4


class Counted(MemoryWorkItems):
    """Keeps when it was asked for what is undelivered, and how often for what is overtaken."""

    def __init__(self) -> None:
        super().__init__(time.time)
        self.looked_at: list[float] = []
        self.asked = 0
        self.enough = threading.Event()

    def undelivered(self, limit: int, handed_before_s: float) -> tuple[WorkItem, ...]:
        self.looked_at.append(time.monotonic())
        if len(self.looked_at) == LOOKS:
            self.enough.set()
        return super().undelivered(limit, handed_before_s)

    def overtaken(self, limit: int) -> tuple[WorkItem, ...]:
        self.asked += 1
        return super().overtaken(limit)


def run(loop: Callable[[], None]) -> None:
    loop()


def test_however_often_it_is_told_to_look_it_pauses_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.fleet.keeper.LOOK_S", 10 * LIMIT_S)
    authority = Counted()
    settings = FleetSettings(claim_ttl_s=300.0, renew_interval_s=100.0)
    presence = WorkerPresence("w", (), 1, 0, 100.0)
    keeper = Keeper(authority, MemoryTransport(), settings, Turns(), run, lambda: presence)
    keeper.start()
    end = time.monotonic() + LIMIT_S
    while not authority.enough.wait(PAUSE_S / 50) and time.monotonic() < end:
        keeper.look()
    keeper.stop()
    looked_at = authority.looked_at
    assert len(looked_at) >= LOOKS, "told to look, it looks"
    assert looked_at[-1] - looked_at[0] >= (len(looked_at) - 2) * PAUSE_S
    assert authority.asked == 1, "what is overtaken is not what it was told of"
