"""A worker: what it makes of deliveries, of turns that end, are lost or to stop, and of an authority out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import attrs
import pytest

from harness.fleet.authority.memory import MemoryWorkItems
from harness.fleet.commands import Cancel, Claim, Command, Submit, Succeed
from harness.fleet.envelope import AgentTurnEnvelope, digest, encode
from harness.fleet.errors import FleetBrokenError, FleetUnavailableError, QueueFullError
from harness.fleet.executors import Executor, TryAgainError
from harness.fleet.lease import WorkItemLeaseGuard
from harness.fleet.ports import Delivery, Receipt, Result
from harness.fleet.queue import HANDED_S, TurnQueue
from harness.fleet.settings import FleetSettings
from harness.fleet.transport.memory import MemoryTransport
from harness.fleet.work_item import Submission, WorkItem, WorkItemState
from harness.fleet.worker import ELSEWHERE_S, Worker

LIMIT_S = 20.0
SETTINGS = FleetSettings(claim_ttl_s=60.0, renew_interval_s=0.05, max_depth=100)


class WatchedWorkItems(MemoryWorkItems):
    """Tells whenever something was performed, and is out of reach or broken, for commands of a kind, when told so."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.performed = threading.Condition()
        self.problems: list[Exception] = []
        self.troubled: type = Succeed

    def perform(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        if self.problems and any(isinstance(command, self.troubled) for command in commands):
            raise self.problems.pop(0)
        results = super().perform(commands)
        with self.performed:
            self.performed.notify_all()
        return results


class Rig:
    """An authority, a transport, and workers on them; time is moved by hand, but for what a worker waits by itself."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.items = WatchedWorkItems(lambda: self.now)
        self.transport = MemoryTransport(clock=lambda: self.now, visibility_s=SETTINGS.claim_ttl_s)
        self.queue = TurnQueue(self.items, self.transport, SETTINGS.max_depth)
        self.workers: list[Worker] = []
        self.opened: list[MemoryTransport] = []

    def worker(self, executor: Executor, slots: int = 2, **more: Executor) -> Worker:
        transport = self.transport.another()
        self.opened.append(transport)
        made = Worker(self.items, transport, {"k": executor, **more}, SETTINGS, slots)
        self.workers.append(made)
        made.start()
        return made

    def submit(self, name: str, **more: Any) -> WorkItem:
        return self.queue.submit(Submission(name, **{"tenant": "t", "session_id": f"of {name}", "kind": "k"} | more))

    def item(self, name: str) -> WorkItem:
        return self.items.find([name])[name]

    def until(self, holds: Callable[[], bool]) -> None:
        """Looks again whenever something was performed, and now and then: the transport tells nobody."""
        with self.items.performed:
            for _ in range(int(LIMIT_S / 0.02)):
                if holds():
                    return
                self.items.performed.wait(0.02)
        raise AssertionError("it did not come to that")

    def ends(self, name: str, state: WorkItemState = WorkItemState.SUCCEEDED) -> WorkItem:
        """Its item, once it has ended so and its delivery is done with."""
        self.until(lambda: self.item(name).state is state)
        return self.item(name)

    def close(self) -> None:
        for worker in self.workers:
            worker.drain(0.0)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("harness.fleet.worker.LOOK_S", 0.05)  # so that a drain is quick
    with closing(Rig()) as made:
        yield made


class Turns:
    """An executor whose turns go on when they are told to; `begun` are those that were begun, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.guards: dict[str, WorkItemLeaseGuard] = {}
        self._may_end: dict[str, threading.Event] = {}
        self._changed = threading.Condition()

    def __call__(self, payload: bytes, guard: WorkItemLeaseGuard) -> str:
        with self._changed:
            self.begun.append(guard.item.id)
            self.guards[guard.item.id] = guard
            self._changed.notify_all()
        assert self._event(guard.item.id).wait(LIMIT_S)
        return guard.side_effect(lambda: f"done with {payload.decode()}")

    def wait_for(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(names) <= set(self.begun), LIMIT_S), f"only {self.begun}"

    def end(self, *names: str) -> None:
        for name in names:
            self._event(name).set()

    def _event(self, name: str) -> threading.Event:
        with self._changed:
            return self._may_end.setdefault(name, threading.Event())


def quick(payload: bytes, guard: WorkItemLeaseGuard) -> str:
    return payload.decode()


def test_a_turn_is_run_and_its_delivery_acknowledged(rig: Rig) -> None:
    rig.worker(quick)
    rig.submit("a", payload_ref=rig.items.keep(b"some words"))
    item = rig.ends("a")
    assert (item.result, item.attempt, item.epoch) == ("some words", 1, 1)
    rig.until(lambda: rig.transport.depth() == 0)
    (outcome,) = rig.items.outcomes("a")
    assert outcome.owner == rig.workers[0].owner
    assert rig.workers[0].counts["succeeded"] == 1


class Reluctant(MemoryTransport):
    """Acknowledges nothing before so many deliveries were received, or that can't be waited for any more."""

    expected = 2

    def __init__(self) -> None:
        super().__init__()
        self.received, self.enough = 0, threading.Event()
        self.waited: list[bool] = []

    def receive(self, limit: int, wait_s: float) -> tuple[Delivery, ...]:
        deliveries = super().receive(limit, wait_s)
        self.received += len(deliveries)
        if self.received == self.expected:
            self.enough.set()
        return deliveries

    def acknowledge(self, receipts: Sequence[Receipt]) -> tuple[Exception | None, ...]:
        self.waited.append(self.enough.wait(LIMIT_S))
        return super().acknowledge(receipts)


def test_the_next_turn_is_received_while_the_last_one_is_acknowledged(rig: Rig) -> None:
    transport = Reluctant()
    queue = TurnQueue(rig.items, transport, SETTINGS.max_depth)
    queue.submit_many([Submission(name, "t", name, "k") for name in "ab"])
    rig.workers.append(Worker(rig.items, transport, {"k": quick}, SETTINGS, 1))
    rig.workers[0].start()
    rig.ends("a")
    rig.ends("b")
    rig.until(lambda: transport.depth() == 0)
    assert all(transport.waited)


def test_a_reference_to_elsewhere_is_passed_on_as_it_is(rig: Rig) -> None:
    rig.worker(quick)
    rig.submit("a", payload_ref="store:17")
    assert rig.ends("a").result == "store:17"


def test_contents_that_are_gone_fail_the_turn(rig: Rig) -> None:
    rig.worker(quick)
    rig.submit("a", payload_ref="sha256:" + "0" * 64)
    assert rig.ends("a", WorkItemState.FAILED).cause == "its payload is gone"


def test_no_more_turns_are_taken_than_there_are_slots(rig: Rig) -> None:
    turns = Turns()
    rig.worker(turns, slots=2)
    for name in "abcd":
        rig.submit(name)
    turns.wait_for("a", "b")
    assert rig.transport.depth() == 4
    assert [rig.item(name).state for name in "cd"] == [WorkItemState.READY] * 2
    turns.end("a")
    turns.wait_for("c")
    turns.end(*"bcd")
    rig.ends("d")
    assert turns.begun == list("abcd")


def test_a_session_is_serial_whoever_works(rig: Rig) -> None:
    turns = Turns()
    for _ in range(2):
        rig.worker(turns, slots=3)
    for name in "abc":
        rig.submit(name, session_id="one")
    rig.submit("d", session_id="other")
    turns.wait_for("a", "d")
    turns.end("d")
    rig.ends("d")
    assert turns.begun.count("a") == 1 and not {"b", "c"} & set(turns.begun)
    for name in "abc":
        turns.wait_for(name)
        turns.end(name)
    rig.ends("c")
    assert [name for name in turns.begun if name != "d"] == list("abc")


def test_what_comes_twice_is_run_once(rig: Rig) -> None:
    begun: list[str] = []
    rig.worker(lambda _, guard: begun.append(guard.item.id))
    item = rig.submit("a")
    rig.ends("a")
    rig.until(lambda: rig.transport.depth() == 0)
    rig.transport.put_many([item.envelope(rig.now)], 10)
    rig.until(lambda: rig.transport.depth() == 0)
    assert begun == ["a"]


@pytest.mark.parametrize("tenant", ["t", "stranger"])
def test_an_envelope_that_is_nobodys_is_buried_and_never_run(rig: Rig, tenant: str) -> None:
    begun: list[str] = []
    if tenant == "stranger":  # the item is there, and another tenant's
        rig.submit("x", not_before=rig.now + 1e6)
    rig.worker(lambda _, guard: begun.append(guard.item.id))
    envelope = AgentTurnEnvelope("x", "s", "k", "", tenant)
    rig.transport.put_many([envelope], 10)
    rig.until(lambda: rig.transport.depth() == 0)
    (grave,) = rig.items.graves(10)
    assert (grave.digest, grave.job_id, grave.tenant) == (digest(encode(envelope)), "x", tenant)
    assert begun == []


def test_what_is_no_envelope_is_buried_by_its_digest_and_keeps_nobody_waiting(rig: Rig) -> None:
    for _ in range(2):
        rig.transport.plant("p", b"\xff{}", "is not JSON")
        rig.worker(quick) if not rig.workers else None
        rig.until(lambda: rig.transport.depth() == 0)
    (grave,) = rig.items.graves(10)
    assert (grave.digest, grave.cause, grave.count) == (digest(b"\xff{}"), "is not JSON", 2)
    rig.submit("a")
    rig.ends("a")


def test_a_deadline_that_passed_cancels(rig: Rig) -> None:
    rig.submit("a", deadline=rig.now + 5)
    rig.now += 6
    rig.worker(lambda *_: pytest.fail("it ran"))
    assert rig.ends("a", WorkItemState.CANCELLED).cause == "its deadline passed"
    rig.until(lambda: rig.transport.depth() == 0)


def test_an_attempt_that_failed_is_tried_again_when_it_is_due(rig: Rig) -> None:
    def stumbling(_: bytes, guard: WorkItemLeaseGuard) -> str:
        if guard.item.attempt == 1:
            raise TryAgainError("unlucky")
        return "at last"

    rig.worker(stumbling)
    rig.submit("a")
    rig.until(lambda: rig.item("a").failures == 1)
    rig.until(lambda: rig.transport.depth() == 0)
    assert rig.item("a").state is WorkItemState.READY
    rig.now += 3.0
    item = rig.ends("a")
    assert (item.result, item.attempt, item.failures) == ("at last", 2, 1)


def test_a_kind_that_this_worker_does_not_know_is_left_to_others_unharmed(rig: Rig) -> None:
    rig.worker(quick)
    rig.submit("a", kind="of others", max_attempts=1)
    rig.until(lambda: "no executor of kind 'of others'" in rig.item("a").cause)
    item = rig.item("a")
    assert (item.state, item.failures) == (WorkItemState.READY, 0)
    rig.until(lambda: rig.transport.depth() == 0)
    assert rig.workers[0].drain(0.0)
    rig.worker(quick, **{"of others": quick})
    rig.now += ELSEWHERE_S + 1
    rig.ends("a")


def test_what_waited_for_a_success_runs_at_once(rig: Rig) -> None:
    rig.worker(quick)
    rig.submit("a")
    rig.submit("b", depends_on=("a",))
    assert rig.ends("b").started_at >= rig.item("a").changed_at
    assert rig.item("a").state is WorkItemState.SUCCEEDED


def test_a_lost_lease_writes_nothing_and_its_delivery_stays(rig: Rig) -> None:
    turns = Turns()
    worker = rig.worker(turns)
    rig.submit("a")
    turns.wait_for("a")
    rig.now += SETTINGS.claim_ttl_s + 1
    (item,) = rig.items.perform([Claim("a", "t", "them", 60.0, starts=True)])
    if isinstance(item, Exception):  # it was renewed just before
        rig.now += SETTINGS.claim_ttl_s + 1
        (item,) = rig.items.perform([Claim("a", "t", "them", 60.0, starts=True)])
    assert isinstance(item, WorkItem), item
    assert turns.guards["a"].wait(LIMIT_S)  # the keeper found out
    turns.end("a")
    rig.until(lambda: worker.counts["lease_lost"] == 1 and worker.busy == 0)  # and has given it back
    assert rig.item("a").owner == "them"
    assert rig.transport.depth() == 1
    rig.items.perform([Succeed(item.lease, "theirs")])
    rig.now += 2
    rig.until(lambda: rig.transport.depth() == 0)  # it came again, and has ended
    assert rig.item("a").result == "theirs"


def test_a_cancellation_stops_a_turn_at_its_safepoint(rig: Rig) -> None:
    turns = Turns()
    rig.worker(turns)
    rig.submit("a")
    turns.wait_for("a")
    rig.items.perform([Cancel("a", "t", "not wanted")])
    assert turns.guards["a"].wait(LIMIT_S)
    turns.end("a")
    assert rig.ends("a", WorkItemState.CANCELLED).cause == "not wanted"
    rig.until(lambda: rig.transport.depth() == 0)


def test_what_ended_is_written_down_when_the_authority_is_back(rig: Rig) -> None:
    turns = Turns()
    rig.worker(turns)
    rig.submit("a")
    turns.wait_for("a")
    rig.items.problems += [FleetUnavailableError("out of reach")] * 3
    turns.end("a")
    rig.ends("a")
    assert rig.items.problems == []


def test_a_worker_that_can_not_go_on_says_so(rig: Rig) -> None:
    worker = rig.worker(quick)
    broken = FleetBrokenError("the schema is a newer version's")
    rig.items.troubled = Claim
    rig.items.problems.append(broken)
    rig.submit("a")
    assert worker.wait(LIMIT_S)
    assert worker.problem is broken
    assert worker.drain(0.0)


def test_what_a_submitter_left_behind_is_delivered(rig: Rig) -> None:
    """It died between its two writes."""
    rig.items.perform([Submit(Submission("a", "t", "s", "k"))])
    assert rig.transport.depth() == 0
    rig.worker(quick)
    rig.now += HANDED_S + 1
    assert rig.ends("a").attempt == 1
    rig.until(lambda: rig.transport.depth() == 0)


def test_who_takes_a_turns_place_in_the_queue_does_not_keep_it_from_being_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.fleet.keeper.STRANDED_S", 0.05)
    rig.transport.put_many([AgentTurnEnvelope("a", "s", "k", "", "stranger", enqueued_at=rig.now)], 10)
    rig.submit("a")
    rig.queue.flush()
    assert rig.transport.depth() == 1, "the queue has a delivery of that job, and takes no other"
    rig.worker(quick)
    assert rig.ends("a").attempt == 1
    rig.until(lambda: rig.transport.depth() == 0)
    assert [(grave.job_id, grave.tenant, grave.count) for grave in rig.items.graves(10)] == [("a", "stranger", 1)]


def test_a_full_queue_refuses_and_leaves_nothing_claimable(rig: Rig) -> None:
    queue = TurnQueue(rig.items, rig.transport, 2)
    for name in "ab":
        queue.submit(Submission(name, "t", name, "k"))
    with pytest.raises(QueueFullError):
        queue.submit(Submission("c", "t", "c", "k"))
    assert rig.items.find(["c"]) == {}
    assert queue.submit(Submission("a", "t", "a", "k")).id == "a"  # what was accepted is not refused
    results = TurnQueue(rig.items, rig.transport, 3).submit_many([Submission(name, "t", name, "k") for name in "cd"])
    assert [type(result) for result in results] == [WorkItem, QueueFullError]
    assert rig.items.find(["c", "d"]).keys() == {"c"}


def test_a_drain_waits_for_turns_and_takes_no_more(rig: Rig) -> None:
    turns = Turns()
    worker = rig.worker(turns, slots=1)
    rig.submit("a")
    rig.submit("b")
    turns.wait_for("a")
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(worker.drain(LIMIT_S)))
    thread.start()
    assert worker.wait(LIMIT_S)
    turns.end("a")
    thread.join(LIMIT_S)
    assert drained == [True]
    assert rig.item("a").state is WorkItemState.SUCCEEDED
    assert (rig.item("b").state, rig.transport.depth()) == (WorkItemState.READY, 1)


def test_a_drain_gives_back_what_stops_when_it_is_asked_to(rig: Rig) -> None:
    def long(_: bytes, guard: WorkItemLeaseGuard) -> str:
        guard.leave("half way")
        assert guard.wait(LIMIT_S)
        guard.safepoint()
        return "never"

    worker = rig.worker(long)
    rig.submit("a")
    rig.until(lambda: rig.item("a").checkpoint == "half way")
    assert worker.drain(0.0)
    item = rig.item("a")
    assert (item.state, item.checkpoint, item.failures) == (WorkItemState.READY, "half way", 0)
    rig.worker(lambda _, guard: guard.checkpoint)
    assert rig.ends("a").result == "half way"


def test_a_turn_that_heeds_nothing_is_left_to_its_lease(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.fleet.worker.LAST_WORDS_S", 0.05)
    turns = Turns()
    worker = rig.worker(turns)
    rig.submit("a")
    turns.wait_for("a")
    assert not worker.drain(0.0)
    assert rig.item("a").state is WorkItemState.RUNNING
    assert turns.guards["a"].is_lost
    turns.end("a")


def test_a_submission_again_is_no_other_one(rig: Rig) -> None:
    first = rig.submit("a")
    assert rig.submit("a") == first
    assert rig.transport.depth() == 1
    with pytest.raises(Exception, match="submitted before with another kind"):
        rig.submit("a", kind="other")
    later = attrs.evolve(first, delivered=True)
    rig.queue.flush()
    assert rig.submit("a") == later
