"""The product's turns for a measurement: submitted to an authority, admitted to its transport, and run by a worker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from dispatch.bench.fleet_member import Teller
from harness.fleet.envelope import AgentTurnEnvelope
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.opening import Fleet, open_fleet
from harness.fleet.ports import Delivery, Ending, Joint, Opening, Receipt, Settlement, Transport
from harness.fleet.settings import FleetSettings
from harness.fleet.work_item import Submission, WorkItem
from harness.fleet.worker import Worker

KIND, TENANT = "noop", "bench"
_DEEP = 10**6  # turns; the bound is checked, and never met
_GRACE_S, _LOOK_S = 5.0, 0.5


class Ours:
    """At `place`: the URL of a PostgreSQL database, or a folder for SQLite files. `batch` is how many slots a worker
    has."""

    work = f"{__name__}:work"

    def __init__(self, place: str, batch: int) -> None:
        self.name, self.place, self.batch = "dispatch", place, batch
        self._fleet = _opened(place)
        self._queue = self._fleet.queue

    def admit(self, names: Sequence[str]) -> None:
        """Each in a session of its own."""
        if len(names) == 1:
            self._queue.submit(_turn(names[0]))
            return
        for result in self._queue.submit_many([_turn(name) for name in names]):
            if isinstance(result, Exception):
                raise result

    def close(self) -> None:
        self._fleet.close()


def work(place: str, batch: int, tell: Teller, over: threading.Event) -> None:
    """A worker with so many slots."""

    def executor(payload: bytes, guard: WorkItemLeaseGuard) -> None:
        tell.started()

    with closing(_opened(place)) as fleet:
        joint = TellingJoint(fleet.joint, tell) if fleet.joint is not None else None
        worker = Worker(fleet.authority, Telling(fleet.transport, tell), {KIND: executor}, fleet.settings, batch, joint)
        worker.start()
        tell.ready()
        while not (over.wait(_LOOK_S) or worker.is_draining):
            pass
        drained = worker.drain(_GRACE_S)
        if worker.problem is not None:
            raise worker.problem
        assert drained, "a turn is left"


class Telling:
    """A transport that tells of what was acknowledged: the last thing that happens to a turn."""

    def __init__(self, transport: Transport, tell: Teller) -> None:
        self._transport, self._tell = transport, tell

    def put_many(self, envelopes: Sequence[AgentTurnEnvelope], limit: int) -> tuple[bool, ...]:
        return self._transport.put_many(envelopes, limit)

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        return self._transport.receive(limit, wait_s)

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        answers = self._transport.acknowledge(receipts)
        self._tell.done(answers.count(None))
        return answers

    def give_back(self, receipts: Sequence[Receipt], delay_s: float) -> tuple[Exception | None, ...]:
        return self._transport.give_back(receipts, delay_s)

    def extend(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        return self._transport.extend(receipts)

    def depth(self) -> int:
        return self._transport.depth()

    def close(self) -> None:
        self._transport.close()


class TellingJoint:
    """The same where it is acknowledged in the transaction of its end."""

    def __init__(self, joint: Joint, tell: Teller) -> None:
        self._joint, self._tell = joint, tell

    def admit(self, submissions: Sequence[Submission], limit: int) -> tuple[WorkItem, ...] | None:
        return self._joint.admit(submissions, limit)

    def settle(self, endings: Sequence[Ending], openings: Sequence[Opening]) -> Settlement:
        settled = self._joint.settle(endings, openings)
        done = sum(isinstance(result, WorkItem) for result in settled.endings)
        if done:
            self._tell.done(done)
        return settled


def _turn(name: str) -> Submission:
    return Submission(name, TENANT, name, KIND, payload_ref="nothing")


def _opened(place: str) -> Fleet:
    if place.startswith("postgresql://"):
        return open_fleet(FleetSettings("postgres", place, place, max_depth=_DEEP))
    state = f"sqlite:///{Path(place, 'state.db')}"
    return open_fleet(FleetSettings("sqlite", state, state, max_depth=_DEEP))
