from __future__ import annotations

import pytest

from dispatch.commands import Cancel, Enqueue, Hold, Pause, Release
from dispatch.slice import Slice, TouchSet
from dispatch.view.standing import Standing, standing
from harness import Recipe, SessionPhase
from tests.unit.graph_rig import Graph

FAILED, CLOSED = SessionPhase.FAILED, SessionPhase.CLOSED


def told(where: Standing) -> dict[str, tuple[str, str, str]]:
    return {name: (block.kind, block.text, block.root) for name, block in where.blocked.items()}


def test_a_graph_at_work_is_not_over() -> None:
    where = standing(Graph(Slice("a"), Slice("b"), Slice("c", depends_on=("b",)), cap=1).snapshot())
    assert (where.blocked, where.ready, where.over) == ({}, ("a",), False)  # b ranks higher, and runs


def test_a_graph_that_waits_for_a_place_is_not_over() -> None:
    where = standing(Graph(Slice("a"), cap=0).snapshot())
    assert (where.ready, where.over) == (("a",), False)


def test_a_graph_without_slices_and_one_that_has_merged_are_over() -> None:
    assert standing(Graph().snapshot()).over
    graph = Graph(Slice("a"))
    graph.merge("a")
    where = standing(graph.snapshot())
    assert (where.blocked, where.ready, where.over) == ({}, (), True)


def test_what_is_behind_a_failure_is_stranded_however_far() -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)), Slice("c", depends_on=("b",)), Slice("d"))
    graph.merge("d")
    graph.report("a", FAILED, error="no")
    where = standing(graph.snapshot())
    assert where.over
    assert told(where) == dict.fromkeys("bc", ("stranded", "needs a, which failed", "a"))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (lambda graph: graph.do(Cancel("a")), "was canceled"),
        (lambda graph: graph.do(Hold("a", "later")), "is held"),
    ],
)
def test_what_is_behind_a_canceled_or_held_slice_is_stranded(block: object, words: str) -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)), cap=0)
    assert callable(block)
    block(graph)
    where = standing(graph.snapshot())
    assert where.over
    assert told(where)["b"] == ("stranded", f"needs a, which {words}", "a")


def test_a_held_slice_says_why_and_its_own_hold_comes_first() -> None:
    graph = Graph(Slice("a", hold="not now"), Slice("b", depends_on=("a",), hold="nor this"))
    where = standing(graph.snapshot())
    assert where.over
    assert told(where) == {"a": ("held", "held: not now", ""), "b": ("held", "held: nor this", "")}


CONTENDERS = [
    (Slice("a", contends=()), Slice("b", contends=("a",))),
    (Slice("b"), Slice("a", contends=("b",))),
    (Slice("a", touch=TouchSet(hotspots=("x",))), Slice("b", touch=TouchSet(hotspots=("y", "x")))),
    (Slice("a", touch=TouchSet(paths=("src/**",))), Slice("b", touch=TouchSet(paths=("docs", "src/*.c")))),
]


@pytest.mark.parametrize("slices", CONTENDERS)
def test_a_review_excludes_its_contenders_and_strands_what_is_behind_them(slices: tuple[Slice, Slice]) -> None:
    graph = Graph(*slices, Slice("c", depends_on=("b",)), cap=0)
    graph.do(Hold("b"))
    graph.open(1)
    graph.report("a", CLOSED, pull_request_url="https://x/1")
    graph.do(Release("b"))
    where = standing(graph.snapshot())
    assert where.over
    assert told(where) == {
        "b": ("excluded", "contends with a, which is in review", "a"),
        "c": ("stranded", "needs b, which can't start: contends with a, which is in review", "b"),
    }


def test_a_review_keeps_nobody_else() -> None:
    graph = Graph(Slice("a", touch=TouchSet(paths=("src",), hotspots=("x",))), cap=1)
    graph.report("a", CLOSED, pull_request_url="https://x/1")
    graph.cap = 0
    graph.do(Enqueue((Slice("b", touch=TouchSet(paths=("docs",), hotspots=("y",))), Slice("c", depends_on=("a",)))))
    where = standing(graph.snapshot())
    assert where.ready == ("b",)
    assert told(where) == {"c": ("stranded", "needs a, which is in review", "a")}


def test_a_paused_graph_is_over_when_nothing_runs() -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)), cap=0)
    graph.do(Pause("lunch"))
    where = standing(graph.snapshot())
    assert where.over
    assert told(where) == dict.fromkeys("ab", ("paused", "the graph is paused: lunch", ""))


def test_a_paused_graph_is_not_over_while_something_runs() -> None:
    graph = Graph(Slice("a", recipe=Recipe()), Slice("b"), cap=1)
    graph.do(Pause(""))
    assert not standing(graph.snapshot()).over


def test_a_chain_of_many_is_no_trouble() -> None:
    slices = [Slice("s0"), *(Slice(f"s{n}", depends_on=(f"s{n - 1}",)) for n in range(1, 5_000))]
    graph = Graph(*slices, cap=1)
    graph.report("s0", FAILED)
    where = standing(graph.snapshot())
    assert len(where.blocked) == 4_999
    assert where.blocked["s4999"].root == "s0"
