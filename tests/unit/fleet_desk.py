"""What tests of the fleet's surfaces look at: an authority and a queue in memory, a clock moved by hand."""

from __future__ import annotations

from collections.abc import Sequence

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.commands import Claim, Command, Succeed
from harness.fleet.errors import FleetUnavailableError
from harness.fleet.ports import Tally, WorkerPresence
from harness.fleet.queue import TurnQueue
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.work_item import Lease, Submission, WorkItem

WORKER = WorkerPresence("5eed", ("k",), 4, 1, 30.0)
AWAY = FleetUnavailableError("postgresql://ada@sekrit-host/db is out of reach")


class Authority(MemoryWorkItems):
    """Out of reach, for those who look on, while `is_away`."""

    is_away = False

    def tally(self) -> Tally:
        self.check()
        return super().tally()

    def find(self, ids: Sequence[str]) -> dict[str, WorkItem]:
        self.check()
        return super().find(ids)

    def check(self) -> None:
        if self.is_away:
            raise AWAY


class Transport(MemoryTransport):
    """Its depth can't be read while `is_away`."""

    is_away = False

    def depth(self) -> int:
        if self.is_away:
            raise AWAY
        return super().depth()


class FleetDesk:
    def __init__(self) -> None:
        self.now = 1000.0
        self.authority = Authority(lambda: self.now)
        self.transport = Transport(clock=lambda: self.now)
        self.queue = TurnQueue(self.authority, self.transport, 100)

    def submit(self, item_id: str, tenant: str = "t", kind: str = "k", **more: object) -> WorkItem:
        given = {"session_id": f"s-{item_id}", "max_attempts": 1} | more
        return self.queue.submit(Submission(id=item_id, tenant=tenant, kind=kind, **given))  # type: ignore[arg-type]

    def perform(self, command: Command) -> WorkItem:
        (result,) = self.authority.perform([command])
        assert isinstance(result, WorkItem), result
        return result

    def begin(self, item_id: str, tenant: str = "t", ttl_s: float = 60.0) -> Lease:
        return self.perform(Claim(item_id, tenant, WORKER.token, ttl_s, starts=True)).lease

    def finish(self, item_id: str, result: str = "done") -> None:
        self.perform(Succeed(self.begin(item_id), result))
