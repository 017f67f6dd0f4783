"""A store that goes out of reach, comes back, or is another's; nothing is lost, doubled, or told before it is written.

Time passes when a test says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from dispatch import (
    MemoryStore,
    NotRunningError,
    OwnedElsewhereError,
    OwnershipLostError,
    ReasonCode,
    Slice,
    StoreError,
    StoreUnavailableError,
    TimedOutError,
)
from dispatch.commands import Cancel, DeclareIntent, Enqueue, Explain, Get, Hold, ListSlices, Pause, Route, TakeSnapshot
from dispatch.errors import DispatchError
from dispatch.intent import Intent
from dispatch.owner import BACKLOG, Settle, Stop, Tick
from dispatch.store import Store
from harness import SessionPhase
from tests.integration.service_rig import (
    BEGAN_AT,
    LIMIT_S,
    Host,
    Owned,
    TroubledStore,
    finished,
    in_thread,
    owned,
    serving,
)

BATCH = 1024
FULL = StoreUnavailableError("disk full")
UNUSABLE = StoreError("read-only file")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL):
        yield


@pytest.fixture
def store() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
def rig(store: TroubledStore) -> Iterator[Owned]:
    with owned(store, cores=2) as rig:
        yield rig


def enqueue(*names: str) -> Enqueue:
    return Enqueue(tuple(map(Slice, names)))


def lose(rig: Owned, store: TroubledStore, trouble: DispatchError = FULL) -> None:
    """Let the store fail, and the owner notice."""
    store.trouble = trouble
    with pytest.raises(StoreUnavailableError):
        rig.ask(DeclareIntent(Intent("lost", "s")), timeout=0.05)
    store.tries.wait(2)


def regain(rig: Owned, store: TroubledStore) -> None:
    store.trouble = None
    rig.tick()


# --- while it lasts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [FULL, UNUSABLE])
def test_callers_are_told_at_their_timeout(rig: Owned, store: TroubledStore, trouble: DispatchError) -> None:
    lose(rig, store, trouble)
    with pytest.raises(StoreUnavailableError, match=str(trouble)) as refused:
        rig.ask(enqueue("a"), timeout=0.05)
    assert "may or may not have happened" in str(refused.value)


def test_nothing_is_launched(rig: Owned, store: TroubledStore) -> None:
    rig.ask(Enqueue((Slice("a"), Slice("b", depends_on=("a",)))))
    rig.host.asked.wait(1)
    lose(rig, store)
    rig.send(enqueue("c"))
    rig.report("a@1")
    rig.tick(3)
    assert rig.states() == {"a": "merged", "b": "queued", "c": "queued"}
    assert rig.host.sessions() == ["a@1"]


def test_nothing_of_the_batch_that_failed_is_launched_or_asked(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a"))
    rig.host.asked.wait(1)
    store.trouble = FULL
    rig.send(enqueue("b"), Cancel("a"))
    rig.tick(2)
    assert rig.states() == {"a": "running", "b": "running"}  # as will be written; and snapshots say so
    assert list(rig.host.asked) == [("submit", "a@1")]
    regain(rig, store)
    rig.host.asked.wait(3)
    assert sorted(rig.host.asked) == [("cancel", "a@1"), ("submit", "a@1"), ("submit", "b@1")]


def test_reads_go_on_and_say_since_when_and_what_waits(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a", "b", "c"))
    rig.clock.now += 100
    lose(rig, store)
    rig.clock.now += 50
    rig.report("a@1")
    rig.send(Hold("c", "wait"))
    status = rig.ask(TakeSnapshot()).store
    assert (status.reachable, status.since, status.problem) == (False, BEGAN_AT + 100, "disk full")
    assert status.unwritten == ("a", "c")
    assert rig.ask(Get("c")).hold == "wait"
    rig.send(enqueue("d"))
    codes = {reason.code: reason.text for reason in rig.ask(Explain("d")).reasons}
    assert codes[ReasonCode.STORE] == "the store is out of reach, so nothing is launched: disk full"


def test_reads_of_the_batch_that_fails_are_answered_and_say_so(rig: Owned, store: TroubledStore) -> None:
    store.gate.clear()
    first, *_ = rig.send(enqueue("a"))
    store.tries.wait(1)
    command, snapshot, unknown = rig.send(Pause("lunch"), TakeSnapshot(), Get("absent"))
    store.trouble = FULL
    store.after = True  # the first write had begun
    store.gate.set()
    seen = snapshot.wait(LIMIT_S)
    assert not seen.store.reachable
    assert seen.store.unwritten == ("a",)
    with pytest.raises(DispatchError, match="no slice 'absent'"):
        unknown.wait(LIMIT_S)
    regain(rig, store)
    first.wait(LIMIT_S)
    command.wait(LIMIT_S)


def test_watchers_learn_of_it(rig: Owned, store: TroubledStore) -> None:
    before = rig.line.health.changes
    store.trouble = FULL
    rig.send(Pause("lunch"))
    lost = rig.line.health.wait(before, LIMIT_S)
    assert lost > before
    store.trouble = None
    rig.tick()
    assert rig.line.health.wait(lost, LIMIT_S) > lost
    assert rig.line.health.store_problem == ""


# --- when it is over ----------------------------------------------------------------------------------------------


def test_writing_resumes_by_itself_and_what_waited_is_answered_in_order(rig: Owned, store: TroubledStore) -> None:
    lose(rig, store)
    replies = rig.send(enqueue("a"), enqueue("b"), Hold("absent"), Cancel("a"), enqueue("c"))
    rig.tick(3)
    regain(rig, store)
    assert [replies[i].wait(LIMIT_S) for i in (0, 1, 3, 4)] == [None] * 4
    with pytest.raises(DispatchError, match="no slice 'absent'"):
        replies[2].wait(LIMIT_S)
    assert rig.states() == {"a": "canceled", "b": "running", "c": "running"}
    assert store.written_ids()[-2:] == [["a", "b", "c"], ["b", "c"]]
    assert {row.slice.id: row.state.value for row in store.load().slices} == rig.states()


def test_reports_are_kept(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a", "b", "c"))
    lose(rig, store)
    rig.report("a@1", SessionPhase.MERGED)
    rig.report("b@1", SessionPhase.FAILED, error="broke")
    rig.tick(5)
    regain(rig, store)
    assert rig.states() == {"a": "merged", "b": "failed", "c": "running"}
    rows = {row.slice.id: row for row in store.load().slices}
    assert (rows["a"].state.value, rows["b"].error) == ("merged", "broke")


def test_launching_resumes_and_nothing_is_launched_twice_or_lost(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a", "b"))
    rig.host.asked.wait(2)
    store.trouble = FULL
    rig.report("a@1")
    rig.send(enqueue("c", "d"))
    rig.tick(4)
    assert len(rig.host.asked) == 2
    regain(rig, store)
    rig.host.asked.wait(3)
    rig.report("b@1")
    rig.host.asked.wait(4)
    rig.ask(Settle())
    assert rig.host.sessions() == ["a@1", "b@1", "c@1", "d@1"]


def test_what_an_outage_held_up_starts_by_what_is_measured_then(rig: Owned, store: TroubledStore) -> None:
    """The hours of an outage are nobody's running time."""
    rig.ask(enqueue("a"))
    store.trouble = FULL
    rig.send(Hold("a"))  # something to write
    rig.tick()
    rig.send(enqueue("b", "c"))
    rig.ask(ListSlices())
    rig.clock.now += 3600
    rig.places.cores = 3
    regain(rig, store)
    rig.host.asked.wait(3)
    started = {view.id: view.started_at for view in rig.ask(ListSlices())}
    assert started == {"a": BEGAN_AT, "b": rig.clock.now, "c": rig.clock.now}


def test_a_write_whose_outcome_is_unknown_is_written_again_to_the_same_end(rig: Owned, store: TroubledStore) -> None:
    store.after, store.trouble = True, FULL
    replies = rig.send(enqueue("a"))
    rig.tick(2)
    assert [row.slice.id for row in store.store.load().slices] == ["a"]
    store.trouble = None
    rig.tick()
    replies[0].wait(LIMIT_S)
    rig.ask(Settle())
    assert rig.host.sessions() == ["a@1"]


def test_a_message_waits_for_the_store_and_its_route_for_the_turn(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a"))
    store.trouble = FULL
    replies = rig.send(*(Route(Intent("i", "s", "a"), message) for message in ("one", "two")))
    rig.tick(2)
    assert rig.host.sessions("send") == []
    regain(rig, store)
    assert [reply.wait(LIMIT_S).turn_id for reply in replies] == ["turn-1", "turn-2"]


def test_settling_waits_for_the_store(rig: Owned, store: TroubledStore) -> None:
    lose(rig, store)
    with pytest.raises(StoreUnavailableError):
        rig.ask(Settle(), timeout=0.05)
    (reply,) = rig.send(Settle())
    regain(rig, store)
    assert reply.wait(LIMIT_S) == 0


# --- the bound on what waits --------------------------------------------------------------------------------------


def test_what_waits_is_bounded_but_for_reports_and_reads(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a", "b"))
    lose(rig, store)
    waiting = rig.send(*[Hold("b", "wait"), Route(Intent("i", "s", "b"), "m"), Settle()] * (BACKLOG // 3))
    waiting += rig.send(*[Hold("b", "wait")] * (BACKLOG - len(waiting) - 1))
    refused = rig.send(Hold("b", "wait"), Route(Intent("i", "s", "b"), "m"), Settle(), enqueue("c"))
    for reply in refused:
        with pytest.raises(StoreUnavailableError, match="try again later"):
            reply.wait(LIMIT_S)
    rig.report("a@1")
    assert rig.states() == {"a": "merged", "b": "running"}
    regain(rig, store)
    for reply in waiting:
        reply.wait(LIMIT_S)
    rig.ask(enqueue("c"))
    assert rig.states()["a"] == "merged"


def test_the_owner_can_be_stopped_with_a_full_backlog(rig: Owned, store: TroubledStore) -> None:
    lose(rig, store)
    waiting = rig.send(*[Pause("again")] * BACKLOG)
    rig.ask(Stop())
    with pytest.raises(NotRunningError, match="the service was stopped"):
        waiting[0].wait(LIMIT_S)


# --- stopping while it lasts --------------------------------------------------------------------------------------


def test_stopping_tries_once_more(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a"))
    store.trouble = FULL
    rig.report("a@1")
    assert not rig.ask(TakeSnapshot()).store.reachable
    (reply,) = rig.send(enqueue("b"))
    store.trouble = None
    rig.ask(Stop())
    assert reply.wait(LIMIT_S) is None
    assert {row.slice.id: row.state.value for row in store.load().slices} == {"a": "merged", "b": "queued"}


def test_stopping_without_a_store_loses_what_was_not_acknowledged_and_says_so(
    rig: Owned, store: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    rig.ask(enqueue("a"))
    store.trouble = FULL
    (reply,) = rig.send(enqueue("b"))
    with caplog.at_level(logging.ERROR):
        rig.ask(Stop())
    with pytest.raises(NotRunningError):
        reply.wait(LIMIT_S)
    assert "stopped before what had changed was written: b" in caplog.text
    store.trouble = None
    assert [row.slice.id for row in store.load().slices] == ["a"]


def test_of_thousands_that_were_not_written_a_few_are_named(
    rig: Owned, store: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.trouble = FULL
    rig.send(Enqueue(tuple(Slice(f"s{i}") for i in range(5000))))
    with caplog.at_level(logging.ERROR):
        rig.ask(Stop())
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said.endswith("written: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11 and 4,988 more")


def test_a_service_does_not_release_a_store_under_its_owners_hands(store: TroubledStore) -> None:
    """The owner is in the middle of a write that takes longer than anybody waits for."""
    host = Host()
    with serving(host, store) as service:
        store.gate.clear()
        writing, outcome = in_thread(lambda: service.enqueue(Slice("a")))
        store.tries.wait(4)  # claim, load, the first write, this one
        assert list(store.tries) == ["claim", "load", "write", "write"]
        service.stop()
        assert "release" not in list(store.tries)
        store.gate.set()
        finished(writing)
    assert "release" not in list(store.tries)
    assert isinstance(outcome[0], NotRunningError | TimedOutError) or outcome == [None]


# --- claims -------------------------------------------------------------------------------------------------------


def assert_over(rig: Owned, lost: OwnershipLostError) -> None:
    with pytest.raises(NotRunningError, match="another's now") as told:
        rig.ask(ListSlices())
    assert told.value.__cause__ is lost


@pytest.mark.parametrize("by", ["write", "renew"])
def test_a_claim_that_was_lost_ends_the_owner_and_its_sessions(rig: Owned, store: TroubledStore, by: str) -> None:
    rig.ask(enqueue("a", "b", "c"))
    rig.host.asked.wait(2)
    store.trouble = lost = OwnershipLostError("the claim is another's now")
    tries = len(store.tries)
    if by == "write":
        replies = rig.send(Pause("lunch"), enqueue("d"), Settle())
        for reply in replies:
            with pytest.raises(NotRunningError, match="another's now") as told:
                reply.wait(LIMIT_S)
            assert told.value.__cause__ is lost
    else:
        rig.tick(3)
    rig.owner.actor_stopped.wait(LIMIT_S)
    assert_over(rig, lost)
    rig.host.asked.wait(4)
    rig.outbox.stop(LIMIT_S)
    assert sorted(rig.host.sessions("cancel")) == ["a@1", "b@1"]
    store.trouble = None
    rig.tick(4)
    assert len(store.tries) - tries <= 2, "nothing more is written"
    assert [row.slice.id for row in store.load().slices] == ["a", "b", "c"]


class Superseded(TroubledStore):
    """Another process has taken the graph over, and this one learns of it when it renews its claim."""

    def renew(self) -> None:
        self.tries.add("renew")
        raise OwnershipLostError("the claim is another's now")


@pytest.mark.parametrize("piled_up", [1, BATCH - 1])
def test_nothing_is_written_once_a_renewal_was_refused(piled_up: int) -> None:
    """Not even what had piled up by that moment, a full batch with the tick."""
    store = Superseded()
    with owned(store) as rig:
        rig.ask(enqueue("a"))
        rig.host.asked.wait(1)
        rig.tick(2)
        tries = len(store.tries)
        store.gate.clear()
        rig.send(Hold("a", "first"))
        store.tries.wait(tries + 1)
        rig.send(*(enqueue(f"s{i}") for i in range(piled_up)))
        rig.line.tell(Tick())
        store.gate.set()
        assert rig.owner.actor_stopped.wait(LIMIT_S)
        rig.outbox.stop(LIMIT_S)
        assert list(store.tries)[tries:] == ["write", "renew"]
        assert [row.slice.id for row in store.load().slices] == ["a"]
        assert rig.host.sessions("cancel") == ["a@1"]


def test_a_real_successor_is_not_written_over() -> None:
    first = MemoryStore()
    with owned(first) as rig:
        rig.ask(enqueue("a"))
        second = first.another()
        second.claim("default", take_over=True)
        with pytest.raises(NotRunningError, match="taken over by another process"):
            rig.ask(enqueue("b"))
        assert [row.slice.id for row in second.load().slices] == ["a"]
        rig.host.asked.wait(2)
        assert list(rig.host.asked) == [("submit", "a@1"), ("cancel", "a@1")]


def test_a_claim_is_renewed_every_three_ticks(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a"))
    rig.tick(9)
    assert list(store.tries).count("renew") == 3
    assert len(store.writes) == 1


def test_a_renewal_that_fails_is_an_outage_and_heals(rig: Owned, store: TroubledStore) -> None:
    rig.ask(enqueue("a", "b", "c"))
    store.trouble = FULL
    rig.tick(3)
    rig.report("a@1")
    assert not rig.ask(TakeSnapshot()).store.reachable
    assert rig.states() == {"a": "merged", "b": "running", "c": "queued"}
    regain(rig, store)
    assert rig.ask(TakeSnapshot()).store.reachable
    rig.host.asked.wait(3)
    assert rig.states() == {"a": "merged", "b": "running", "c": "running"}


def test_while_it_is_out_of_reach_each_tick_tries(rig: Owned, store: TroubledStore) -> None:
    lose(rig, store)
    tries = len(store.tries)
    rig.tick(4)
    assert list(store.tries)[tries:] == ["renew"] * 4


# --- at the start -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [FULL, UNUSABLE, OwnedElsewhereError("default", "noon", "pid 1")])
def test_a_start_that_fails_says_why_and_leaves_nothing_behind(store: TroubledStore, trouble: DispatchError) -> None:
    store.trouble = trouble
    threads = threading.active_count()
    with pytest.raises(type(trouble)) as refused, serving(store=store):
        pass
    assert refused.value is trouble
    assert threading.active_count() == threads
    store.trouble = None
    with serving(store=store) as service:  # nothing holds the claim
        service.enqueue(Slice("a"))


class Unreadable(TroubledStore):
    def load(self) -> object:  # type: ignore[override]
        super().load()
        raise UNUSABLE


def test_a_graph_that_cannot_be_read_is_given_up_again() -> None:
    inner = MemoryStore()
    with pytest.raises(StoreError, match="read-only"), serving(store=Unreadable(inner)):
        pass
    other: Store = inner.another()
    other.claim("default")


def test_a_store_that_fails_right_after_the_start_fails_it() -> None:
    """The first write is part of the start."""

    class Short(TroubledStore):
        def load(self) -> object:  # type: ignore[override]
            contents = super().load()
            self.trouble = UNUSABLE
            return contents

    store, outcome = Short(), list[object]()
    begun, outcome = in_thread(lambda: serving(store=store).__enter__())
    store.tries.wait(3)
    store.trouble = None
    finished(begun)
    service = outcome[0]
    assert not isinstance(service, BaseException), service
    service.stop()
