from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from dispatch.cli.admission import admit, difference
from dispatch.cli.ending import RefusedError
from dispatch.commands import Cancel, DeclareIntent
from dispatch.intent import Intent, Urgency
from dispatch.plans import PlanFile
from dispatch.slice import Slice, TouchSet
from harness import Recipe, SessionPhase
from tests.unit.graph_rig import Graph


def plan(*slices: Slice, intents: tuple[Intent, ...] = ()) -> PlanFile:
    return PlanFile(Path("plan.toml"), "plan", slices, intents, None, None)


def admission(wanted: PlanFile, graph: Graph) -> tuple[list[str], list[str], tuple[str, ...]]:
    snapshot = graph.snapshot()
    found = admit(wanted, snapshot.slices, snapshot.intents)
    return [slice_.id for slice_ in found.slices], [intent.id for intent in found.intents], found.kept


def test_all_of_a_plan_is_new_to_an_empty_graph() -> None:
    intent = Intent("plan.a", "now", scope="a")
    assert admission(plan(Slice("a"), Slice("b"), intents=(intent,)), Graph()) == (["a", "b"], ["plan.a"], ())


def test_a_plan_that_is_stored_has_nothing_new() -> None:
    slices = (Slice("a"), Slice("b", title="B", recipe=Recipe(("true",)), touch=TouchSet(("x",))))
    intent = Intent("plan.a", "now", scope="a")
    graph = Graph(*slices)
    graph.do(DeclareIntent(intent))
    assert admission(plan(*slices, intents=(intent,)), graph) == ([], [], ())


def test_only_what_was_added_is_new() -> None:
    assert admission(plan(Slice("a"), Slice("b", depends_on=("a",))), Graph(Slice("a"))) == (["b"], [], ())


CHANGES = [
    ("title", {"title": "other"}),
    ("command", {"recipe": Recipe(("false",))}),
    ("prompt", {"recipe": Recipe(prompt="x")}),
    ("paths", {"touch": TouchSet(("x",))}),
    ("hotspots", {"touch": TouchSet((), ("x",))}),
    ("depends_on", {"depends_on": ("z",)}),
    ("hold", {"hold": "x"}),
]


@pytest.mark.parametrize(("field", "change"), CHANGES)
def test_the_field_that_differs_is_named(field: str, change: dict[str, object]) -> None:
    assert difference(attrs.evolve(Slice("a"), **change), Slice("a", title="a")) == field  # type: ignore[arg-type]


def test_a_title_left_out_is_the_id() -> None:
    assert difference(Slice("a"), Slice("a", title="a")) == ""


@pytest.mark.parametrize(("field", "value"), [("depends_on", ("a",)), ("contends", ("a",)), ("hold", "later")])
def test_edges_and_holds_of_an_unfinished_slice_are_not_rewritten(field: str, value: object) -> None:
    graph = Graph(Slice("a"), Slice("b", recipe=Recipe(("true",))))
    changed = attrs.evolve(Slice("b", recipe=Recipe(("false",))), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=rf"slice 'b' is in the graph already with another {field}, .* new id"):
        admission(plan(Slice("a"), changed), graph)


def test_a_slice_in_review_is_not_rewritten() -> None:
    graph = Graph(Slice("a"), cap=1)
    graph.report("a", SessionPhase.CLOSED, pull_request_url="https://example.org/1")
    with pytest.raises(RefusedError, match="slice 'a' is in the graph already with another title"):
        admission(plan(Slice("a", title="new words")), graph)


@pytest.mark.parametrize("failed", [False, True])
def test_what_has_no_session_is_mended_and_what_had_failed_is_told(failed: bool) -> None:
    graph = Graph(Slice("a"), cap=1 if failed else 0)
    if failed:
        graph.report("a", SessionPhase.FAILED, error="command not found")
    snapshot = graph.snapshot()
    mended = Slice("a", recipe=Recipe(("true",)), touch=TouchSet(("x",)))
    found = admit(plan(mended), snapshot.slices, snapshot.intents)
    assert (found.slices, found.revised, found.kept) == ((), (mended,), ())
    assert found.failed == (("a",) if failed else ())


@pytest.mark.parametrize("end", ["merged", "canceled"])
def test_a_finished_slice_stays_as_it_was_and_is_named(end: str) -> None:
    graph = Graph(Slice("a"), cap=1 if end == "merged" else 0)
    if end == "merged":
        graph.report("a", SessionPhase.MERGED)
    else:
        graph.do(Cancel("a"))
    assert admission(plan(Slice("a", title="new words")), graph) == ([], [], ("a",))


def test_a_changed_intent_is_declared_again_and_a_superseded_one_is_not() -> None:
    old, new = Intent("old", "x", scope="a"), Intent("new", "y", scope="a", supersedes="old")
    graph = Graph(Slice("a"))
    for intent in (old, new):
        graph.do(DeclareIntent(intent))
    assert admission(plan(Slice("a"), intents=(old, new)), graph) == ([], [], ())
    urgent = attrs.evolve(new, urgency=Urgency.URGENT)
    assert admission(plan(Slice("a"), intents=(old, urgent)), graph) == ([], ["old", "new"], ())
