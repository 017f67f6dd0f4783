from __future__ import annotations

import attrs
import pytest

from dispatch.commands import Cancel, DeclareIntent, Enqueue, Hold, MarkMerged, Pause, Release, Resume, Retry
from dispatch.intent import Intent, Urgency
from dispatch.slice import Slice, TouchSet
from dispatch.view.events import as_durable, events_between
from dispatch.views import StoreStatus
from harness import Recipe, SessionPhase
from tests.unit.graph_rig import BEGAN_AT, Graph

CLOSED, FAILED, CANCELED = SessionPhase.CLOSED, SessionPhase.FAILED, SessionPhase.CANCELED


def happened(graph: Graph, *steps: object) -> list[tuple[str, str, str]]:
    """What the events of some steps are, from the present state of the graph on: what, which slice, why."""
    before = graph.snapshot()
    for step in steps:
        graph.now += 1
        step() if callable(step) else graph.do(step)
    return [(event.what, event.slice_id, event.detail) for event in events_between(before, graph.snapshot())]


def test_nothing_happened_before_the_first_look_and_between_two_alike() -> None:
    graph = Graph(Slice("a"))
    assert events_between(None, graph.snapshot()) == []
    assert happened(graph) == []


def test_a_slice_starts_and_merges_and_lets_its_dependent_start() -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)), cap=0)
    assert happened(graph, lambda: graph.open(1)) == [("started", "a", "")]
    assert happened(graph, lambda: graph.merge("a")) == [("merged", "a", ""), ("started", "b", "")]


def test_what_made_room_is_told_before_what_it_let_start_at_the_same_instant() -> None:
    graph = Graph(Slice("a", touch=TouchSet(hotspots=("x",))), Slice("z"), cap=1)
    graph.merge("a")
    assert happened(graph, lambda: graph.merge("z")) == [("merged", "z", "")]
    graph = Graph(Slice("b"), Slice("a", depends_on=("b",)), cap=1)
    assert [what for what, _, _ in happened(graph, lambda: graph.merge("b"))] == ["merged", "started"]


def test_a_close_says_why_and_how_many_there_were() -> None:
    graph = Graph(Slice("a", recipe=Recipe(max_attempts=2)), cap=1)
    graph.cap = 0
    assert happened(graph, lambda: graph.report("a", CLOSED, detail="merge conflict in x")) == [
        ("closed", "a", "merge conflict in x (close 1 of 2; queued again)")
    ]
    assert happened(graph, lambda: graph.open(1)) == [("started", "a", "attempt 2")]
    assert happened(graph, lambda: graph.report("a", CLOSED, detail="exit 1")) == [("failed", "a", "exit 1")]


def test_a_close_tells_the_reason_and_not_what_the_next_attempt_is_told() -> None:
    graph = Graph(Slice("a"), cap=1)
    told = {"detail": "exit 1", "checkpoint": "The previous attempt ended: exit 1"}
    assert happened(graph, lambda: graph.report("a", CLOSED, **told))[0] == (
        "closed",
        "a",
        "exit 1 (close 1 of 3; queued again)",
    )


def test_an_attempt_that_ended_unseen_is_told_by_its_close() -> None:
    graph = Graph(Slice("a"), cap=1)
    assert happened(graph, lambda: graph.report("a", CLOSED, detail="exit 1")) == [
        ("closed", "a", "exit 1 (close 1 of 3; queued again)"),
        ("started", "a", "attempt 2"),
    ]


def test_a_close_is_told_before_an_attempt_that_has_merged_by_now() -> None:
    graph = Graph(Slice("a"), cap=1)
    assert happened(graph, lambda: graph.report("a", CLOSED, detail="exit 1"), lambda: graph.merge("a")) == [
        ("closed", "a", "it ended without a merge (close 1 of 3; queued again)"),
        ("started", "a", "attempt 2"),
        ("merged", "a", ""),
    ]


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({"error": "no such command"}, ("failed", "a", "no such command")),
        ({}, ("failed", "a", "no reason was given")),
    ],
)
def test_a_failure_says_why(fields: dict[str, str], event: tuple[str, str, str]) -> None:
    graph = Graph(Slice("a"))
    assert happened(graph, lambda: graph.report("a", FAILED, **fields)) == [event]


def test_a_review_names_its_pull_request_and_a_retry_forgets_it() -> None:
    graph = Graph(Slice("a"), cap=1)
    assert happened(graph, lambda: graph.report("a", CLOSED, pull_request_url="https://x/1")) == [
        ("in review", "a", "https://x/1")
    ]
    graph.cap = 0
    assert happened(graph, Retry("a")) == [("retried", "a", "")]


def test_a_preemption_is_told_when_it_is_asked_for_and_when_it_has_come_true() -> None:
    graph = Graph(Slice("low"), cap=1)
    graph.do(Enqueue((Slice("top"),)))
    preempting = happened(graph, DeclareIntent(Intent("u", "now", scope="top", urgency=Urgency.URGENT)))
    assert preempting == [("preempted", "low", "asked to stop at its next safepoint, to make room")]
    assert happened(graph, lambda: graph.report("low", CANCELED)) == [
        ("stopped", "low", "it made room, and is queued again"),
        ("started", "top", ""),
    ]


def test_the_operators_commands_are_told() -> None:
    graph = Graph(Slice("a"), Slice("b"), Slice("c"), cap=1)
    assert happened(graph, Hold("b", "not now")) == [("held", "b", "not now")]
    assert happened(graph, Hold("c", "")) == [("held", "c", "")]
    assert happened(graph, Release("b")) == [("released", "b", "")]
    assert happened(graph, Cancel("c")) == [("canceled", "c", "")]
    assert happened(graph, Cancel("a")) == [("canceling", "a", "asked to stop; it is canceled when it has")]
    assert happened(graph, Pause("lunch")) == [("paused", "", "lunch")]
    assert happened(graph, MarkMerged("b")) == [("merged", "b", "")]
    assert happened(graph, Resume()) == [("resumed", "", "")]


def test_a_slice_that_came_held_and_a_store_that_went_are_told() -> None:
    graph = Graph(Slice("a"))
    assert happened(graph, Enqueue((Slice("b", hold="later"), Slice("c")))) == [
        ("held", "b", "later"),
        ("started", "c", ""),
    ]
    before = graph.snapshot()
    graph.store = StoreStatus("x", reachable=False, since=BEGAN_AT, problem="disk full")
    gone = graph.snapshot()
    (event,) = events_between(before, gone)
    assert (event.what, event.detail, event.at) == ("store", "the store is out of reach: disk full", BEGAN_AT)
    (back,) = events_between(gone, attrs.evolve(gone, store=before.store))
    assert back.detail == "the store is in reach again"


def test_a_preemption_between_two_looks_is_told_by_how_it_ended() -> None:
    graph = Graph(Slice("low"), cap=1)
    graph.do(Enqueue((Slice("top"),)))
    urgent = DeclareIntent(Intent("u", "now", scope="top", urgency=Urgency.URGENT))
    assert happened(graph, urgent, lambda: graph.report("low", CANCELED, detail="stopped at a safepoint")) == [
        ("stopped", "low", "stopped at a safepoint (queued again)"),
        ("started", "top", ""),
    ]


@pytest.mark.parametrize("phase", [CLOSED, CANCELED])
def test_what_ended_is_told_with_the_time_of_its_end(phase: SessionPhase) -> None:
    graph = Graph(Slice("low"), cap=1)
    graph.do(Enqueue((Slice("top"),)))
    graph.do(DeclareIntent(Intent("u", "now", scope="top", urgency=Urgency.URGENT)))
    before = graph.snapshot()
    graph.now += 5
    graph.report("low", phase)
    graph.now += 5
    assert [event.at - BEGAN_AT for event in events_between(before, graph.snapshot())] == [5, 5]


def test_what_is_not_on_the_disk_yet_is_told_once_it_is() -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)))
    graph.open(1)
    before = graph.snapshot()
    graph.merge("a")
    graph.do(Enqueue((Slice("c"),)))
    away = attrs.evolve(graph.snapshot(), store=StoreStatus("u", False, BEGAN_AT, "gone", ("a", "b", "c")))
    durable = as_durable(before, away)
    assert [view.id for view in durable.slices] == ["a", "b"]
    assert [event.what for event in events_between(before, durable)] == ["store"]
    assert as_durable(None, away).slices == ()
    later = as_durable(durable, graph.snapshot())
    told = [(event.what, event.slice_id) for event in events_between(durable, later)]
    assert {("merged", "a"), ("started", "b"), ("store", "")} <= {*told}
