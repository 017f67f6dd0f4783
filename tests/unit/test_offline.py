from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch import DispatchService, FixedCap, MemoryStore, ReasonCode, Slice, SliceState, UnknownSliceError
from dispatch.offline import NoGraphError, StoredGraph, states
from harness import Assignment, SessionPhase, SessionState


class Idle:
    """A host whose sessions do nothing."""

    async def submit(self, assignment: Assignment) -> None:
        pass

    async def send(self, assignment_id: str, message: str) -> str:
        return ""

    async def cancel(self, assignment_id: str) -> None:
        pass


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def service(store: MemoryStore) -> Iterator[DispatchService]:
    with DispatchService(Idle(), store, "demo", measures=FixedCap(1)).start() as service:
        service.enqueue_many([Slice("a"), Slice("b"), Slice("c", depends_on=("b",)), Slice("held", hold="x")])
        yield service


def codes(graph: StoredGraph, slice_id: str) -> list[ReasonCode]:
    return [reason.code for reason in graph.explain(slice_id).reasons]


def test_an_owned_graph_reads_as_its_owner_sees_it(service: DispatchService, store: MemoryStore) -> None:
    graph = StoredGraph.read(store, "demo")
    assert graph.owned
    assert graph.slices() == service.list()
    assert graph.snapshot().frontier == tuple(view.id for view in service.frontier())
    for name in ("a", "b", "c", "held"):
        assert codes(graph, name) == [reason.code for reason in service.explain(name).reasons]
    assert "the cap is measured by the process that runs the graph" in graph.explain("a").reasons[0].text


def test_reading_disturbs_nobody(service: DispatchService, store: MemoryStore) -> None:
    before = store.peek("demo")
    graph = StoredGraph.read(store, "demo")
    graph.snapshot()
    graph.explain("a")
    assert store.peek("demo") == before
    service.check()


def test_without_an_owner_nothing_runs_and_no_cap_keeps_anything(service: DispatchService, store: MemoryStore) -> None:
    service.stop()
    graph = StoredGraph.read(store, "demo")
    assert not graph.owned
    assert states(graph.slices()) == {SliceState.QUEUED: 4}
    assert codes(graph, "a") == []
    assert codes(graph, "held") == [ReasonCode.HELD]
    (attempt,) = graph.attempts("b")
    assert (attempt.outcome, attempt.ended_at) == ("lost", 0)


def test_attempts_are_told_by_slice(service: DispatchService, store: MemoryStore) -> None:
    service.observe_session(SessionState("b@1", SessionPhase.CLOSED, detail="exit 1"))
    service.settle()
    graph = StoredGraph.read(store, "demo")
    assert [(row.attempt, row.outcome, row.detail) for row in graph.attempts("b")] == [
        (1, "closed", "exit 1"),
        (2, "", ""),
    ]
    assert graph.attempts("a") == []


def test_what_is_not_there_is_refused(service: DispatchService, store: MemoryStore) -> None:
    with pytest.raises(NoGraphError, match="there is no graph 'other' in memory:"):
        StoredGraph.read(store, "other")
    with pytest.raises(UnknownSliceError):
        StoredGraph.read(store, "demo").explain("zzz")


def test_states_are_counted_in_the_order_of_a_slices_life() -> None:
    assert states([]) == {}
