"""What tests of a graph on the fleet work with: a repository, a bare remote, a host, and workers with clones."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.fleet import follower
from harness.fleet import worker as worker_module
from harness.fleet.agent import AgentExecutor
from harness.fleet.agent_turn import encode_assignment, item_id
from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.clone import Clone
from harness.fleet.commands import Claim
from harness.fleet.executors import Executor
from harness.fleet.host import FleetSessionHost
from harness.fleet.ports import Authority, Transport
from harness.fleet.queue import TurnQueue
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from harness.fleet.worker import Worker
from harness.local import LocalSessionHost
from harness.session import Assignment
from tests.integration.workshop import GRAPH, Driven, Repo, Reports, make_repo, until

SETTINGS = FleetSettings(max_depth=100, claim_ttl_s=300.0, renew_interval_s=100.0)


class FleetShop(Driven):
    """A fleet in this process. `marks` is a folder in which agents say how far they are, `$MARKS` in their scripts."""

    def __init__(self, folder: Path, authority: Authority | None = None, transport: Transport | None = None) -> None:
        self.folder, self.marks = folder, folder / "marks"
        self.marks.mkdir()
        self.repo = make_repo(folder / "repo")
        self.remote = Repo(folder / "remote.git", bare=True)
        self.ahead_s = 0.0  # of our clock, by the authority's
        self.authority = authority or MemoryWorkItems(lambda: time.time() + self.ahead_s)
        self.transport = transport or MemoryTransport()
        self.queue = TurnQueue(self.authority, self.transport, SETTINGS.max_depth)
        self._workers: list[Worker] = []
        self.reports = Reports()
        self.host = self._host()

    # -- the scheduler's side ------------------------------------------------------------------------------------------

    def _host(self) -> FleetSessionHost:
        host = self._unconnected()
        host.bind(GRAPH)
        host.connect(self.reports)
        return host

    def _unconnected(self) -> FleetSessionHost:
        local = LocalSessionHost(self.repo.path)
        return FleetSessionHost(local, self.repo.path, str(self.remote.path), self.queue, self.authority)

    @contextlib.contextmanager
    def another_host(self, reports: Reports) -> Iterator[FleetSessionHost]:
        """Of another scheduler, in the same repository."""
        host = self._unconnected()
        host.connect(reports)
        try:
            yield host
        finally:
            assert host.close(20.0)

    def restart(self, *assignment_ids: str) -> list[str]:
        """Another host in the place of the one there is, which adopts what it can of these."""
        assert self.host.close(20.0)
        self.reports = Reports()
        self.host = self._host()
        return list(asyncio.run(self.host.adopt(assignment_ids)))

    def payload(self, one: Assignment) -> str:
        """A reference to what a turn of that assignment is told."""
        return self.authority.keep(encode_assignment(one))

    def enqueue(self, name: str, contents: bytes) -> None:
        """An agent turn with whatever contents."""
        self.queue.submit(Submission(name, "stranger", name, "agent", self.authority.keep(contents)))

    def fill(self) -> None:
        """The queue, to the brim."""
        self.queue.submit_many([Submission(f"f{n}", "other", f"s{n}", "agent") for n in range(SETTINGS.max_depth)])

    def state(self, name: str) -> WorkItemState:
        return self.authority.find([name])[name].state

    # -- the workers' side ---------------------------------------------------------------------------------------------

    def clone(self, name: str = "clone.git") -> Clone:
        return Clone.open(self.folder / name, str(self.remote.path))

    def seized(self, assignment_id: str) -> WorkItem:
        """The item of that attempt, claimed by somebody else once its lease has run out."""

        def claim() -> WorkItem | None:
            self.ahead_s += SETTINGS.claim_ttl_s + 1
            claim = Claim(item_id(GRAPH, assignment_id), GRAPH, "somebody else", 3600.0, starts=True)
            (result,) = self.authority.perform([claim])
            return result if isinstance(result, WorkItem) else None

        return next(found for _ in range(100) if (found := claim()) is not None)

    def worker(self, executor: Executor | None = None, *, clone: str = "clone.git", slots: int = 2) -> Worker:
        """One that has begun."""
        executors = {"agent": executor or AgentExecutor(self.clone(clone))}
        worker = Worker(self.authority, self.transport, executors, SETTINGS, slots)
        self._workers.append(worker)
        worker.start()
        return worker

    def item(self, assignment_id: str) -> WorkItem:
        return self.authority.find([item_id(GRAPH, assignment_id)])[item_id(GRAPH, assignment_id)]

    def until(self, assignment_id: str, state: WorkItemState) -> WorkItem:
        """Waits for the item of that attempt to come to the state."""
        self.wait(lambda: self.has(assignment_id) and self.item(assignment_id).state is state)
        return self.item(assignment_id)

    def has(self, assignment_id: str) -> bool:
        """Whether that attempt has been submitted."""
        return bool(self.authority.find([item_id(GRAPH, assignment_id)]))

    def wait(self, holds: Callable[[], bool]) -> None:
        """Waits for something that the authority knows."""
        watch = self.authority.watch()
        until(lambda: holds() or (watch.wait(0.1) and holds()))

    # -- both ----------------------------------------------------------------------------------------------------------

    def reached(self, mark: str) -> None:
        """Waits for an agent to have touched the mark."""
        until((self.marks / mark).exists)

    def branches(self) -> list[str]:
        """Those of the remote that have work."""
        return [name for name in self.remote.refs("refs/heads/dispatch") if not name.endswith("/main")]

    def gate(self, this: str, other: str) -> str:
        """The beginning of a script that says `this` and waits for `other`."""
        return f"touch {self.marks}/{this}; until test -e {self.marks}/{other}; do sleep 0.02; done; "

    def open(self, mark: str) -> None:
        """Lets those go on that wait for the mark."""
        (self.marks / mark).touch()

    def close(self) -> None:
        for worker in self._workers:
            worker.drain(0.0)
        assert self.host.close(20.0)


@contextlib.contextmanager
def fleet_shop(
    folder: Path, authority: Authority | None = None, transport: Transport | None = None
) -> Iterator[FleetShop]:
    """In memory, unless other adapters are given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_module, "LOOK_S", 0.05)  # else each drain waits for it
        patch.setattr(follower, "LOOK_S", 3600.0)  # what there is to know has to be told
        shop = FleetShop(folder, authority, transport)
        try:
            yield shop
        finally:
            shop.close()
