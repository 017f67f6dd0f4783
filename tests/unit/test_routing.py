"""Which slices an intent is about, and where a message goes."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch.commands import Cancel, Command, DeclareIntent, Effect, Hold, Launch, Pause, Proof, Route, Send
from dispatch.errors import InvalidSliceError, SliceExistsError
from dispatch.intent import Intent, Urgency
from dispatch.machine import UNPROVEN
from dispatch.routing import best_target, covered, targets, terms_of
from dispatch.slice import SliceState
from dispatch.views import RouteDecision, RouteResult
from harness import SessionPhase
from tests.unit.machine_rig import URL, Rig, anatomy, in_state, work

COVERED = [
    (["src"], 1),
    (["a.py", "src/*"], 2),
    ([" SRC ", "src", "Src\t"], 1),
    (["schema"], 1),
    (["SCHEMA", "sch", "ema"], 3),
    (["", "  "], 0),
    (["nowhere", "src/a.py/b"], 0),
    (["straße"], 1),
    (["STRASSE"], 1),
]


@pytest.mark.parametrize(("terms", "count"), COVERED)
def test_a_term_is_covered_by_a_path_or_hotspot_as_written_that_contains_it(terms: list[str], count: int) -> None:
    rig = Rig(work("x", paths=["src/*", "./src/a.py", "Straße"], hotspots=["Schema"]))
    assert covered(terms_of(Intent("i", "s", terms=tuple(terms))), rig.machine.graph.node("x")) == count


def rig_of_all_states() -> Rig:
    """Slices in the states they are named after, all touching src; and `q2`, queued, which touches docs besides."""
    rig = Rig(cap=9)
    for state in ("merged", "failed", "canceled", "in_review"):
        rig.enqueue(work(state, paths=["src"]))
        phase = SessionPhase.CLOSED if state == "in_review" else SessionPhase(state)
        rig.report(state, phase, pull_request_url=URL if state == "in_review" else "")
    rig.do(Pause())
    rig.enqueue(work("queued", paths=["src"]), work("q2", paths=["src", "docs"]))
    rig.settle()
    return rig


TARGETS: list[tuple[dict[str, Any], list[str]]] = [
    ({"terms": ("src",)}, ["failed", "in_review", "queued", "q2"]),
    ({"terms": ("src", "docs")}, ["q2"]),
    ({"terms": ("docs",)}, ["q2"]),
    ({"terms": ("nowhere", " DOCS\n", "")}, ["q2"]),
    ({"terms": ("src", "Src ", "SRC", "docs")}, ["q2"]),
    ({"terms": ("lib",)}, []),
    ({}, []),
    ({"scope": "failed", "terms": ("docs",)}, ["failed"]),
    ({"scope": "merged", "terms": ("docs",)}, []),
    ({"scope": "canceled", "terms": ("docs",)}, []),
    ({"scope": "elsewhere", "terms": ("docs",)}, ["q2"]),
    ({"scope": "elsewhere"}, []),
]


@pytest.mark.parametrize(("fields", "names"), TARGETS)
def test_targets(fields: dict[str, Any], names: list[str]) -> None:
    rig = rig_of_all_states()
    found = targets(rig.machine.graph, Intent("i", "s", **fields))
    assert [node.id for node in found] == names
    rig.do(DeclareIntent(Intent("i", "s", **fields)))
    assert [view.id for view in rig.reply] == names


def contenders_for_a_message(*states: SliceState) -> Rig:
    """Slices in these states, in this order, all touching src."""
    rig = Rig(cap=1)
    for i, state in enumerate(states):
        rig.enqueue(work(f"s{i}", paths=["src"], hold="" if state is not SliceState.QUEUED else "wait"))
        if state in (SliceState.MERGED, SliceState.FAILED, SliceState.CANCELED):
            rig.report(f"s{i}", SessionPhase(state.value))
        elif state is SliceState.IN_REVIEW:
            rig.do(Hold(f"s{i}"))
            rig.report(f"s{i}", SessionPhase.CLOSED, pull_request_url=URL)
    return rig


QUEUED, RUNNING, IN_REVIEW = SliceState.QUEUED, SliceState.RUNNING, SliceState.IN_REVIEW
MERGED, FAILED, CANCELED = SliceState.MERGED, SliceState.FAILED, SliceState.CANCELED
BEST = [
    ((MERGED, FAILED, QUEUED), "s1"),
    ((MERGED, QUEUED, FAILED), "s1"),
    ((CANCELED, MERGED), "s1"),
    ((MERGED, MERGED), "s0"),
    ((CANCELED,), None),
    ((FAILED, QUEUED, RUNNING), "s2"),
]


@pytest.mark.parametrize(("states", "name"), BEST)
def test_the_nearest_is_the_best_target(states: tuple[SliceState, ...], name: str | None) -> None:
    rig = contenders_for_a_message(*states)
    best = best_target(rig.machine.graph, Intent("i", "s", terms=("src",)))
    assert (best and best.id) == name


def test_more_terms_beat_nearness() -> None:
    rig = Rig(work("near", paths=["src"]), cap=2)
    rig.enqueue(work("far", paths=["src", "docs"]))
    rig.report("far", SessionPhase.MERGED)
    best = best_target(rig.machine.graph, Intent("i", "s", terms=("src", "docs")))
    assert best is rig.machine.graph.node("far")


# --- routes -------------------------------------------------------------------------------------------------------


def route(rig: Rig, command: Command) -> tuple[RouteResult, list[Effect]]:
    effects = rig.do(command)
    assert isinstance(rig.reply, RouteResult)
    return rig.reply, effects


def attached(rig: Rig) -> dict[str, list[str]]:
    return {name: [node.id for node in entry.attached] for name, entry in rig.machine.graph.intents.items()}


def test_steer_goes_into_the_session_of_a_running_slice() -> None:
    rig = Rig(work("x", paths=["src"]), work("y", paths=["src/a"]), cap=1)
    rig.do(DeclareIntent(Intent("old", "s", terms=("src",))))
    rig.do(DeclareIntent(Intent("i", "s", terms=("src",))))
    assert attached(rig) == {"old": ["x", "y"], "i": ["x", "y"]}
    result, effects = route(rig, Route(Intent("i", "s", "", supersedes="old", terms=("src",)), "faster"))
    assert (result.decision, result.slice_id, result.assignment_id) == (RouteDecision.STEER, "x", "x@1")
    assert result.view is not None
    assert result.view.intents == ("i",)
    assert effects == [Send("x@1", "faster")]
    assert attached(rig) == {"i": ["x"]}


def test_a_message_that_is_empty_is_the_statement() -> None:
    rig = Rig(work("x"))
    assert rig.do(Route(Intent("i", "as stated", "x"))) == [Send("x@1", "as stated")]


@pytest.mark.parametrize("state", [QUEUED, SliceState.PREEMPTED, IN_REVIEW, FAILED])
def test_queue_goes_to_what_is_unfinished_and_not_running(state: SliceState) -> None:
    rig = in_state(state)
    result, effects = route(rig, Route(Intent("i", "s", "x"), "faster"))
    assert (result.decision, result.slice_id) == (RouteDecision.QUEUE, "x")
    assert effects == []
    assert attached(rig)["i"] == ["x"]


@pytest.mark.parametrize(("url", "reference"), [(URL, URL), ("", "slice x has merged")])
def test_already_done_registers_nothing(url: str, reference: str) -> None:
    rig = Rig(work("x"))
    rig.do(DeclareIntent(Intent("old", "s", "x")))
    rig.report("x", SessionPhase.MERGED, pull_request_url=url)
    rig.settle()
    before = anatomy(rig.machine)
    result, effects = route(rig, Route(Intent("i", "s", "x", supersedes="old"), "faster", work("new")))
    assert (result.decision, result.slice_id, result.reference) == (RouteDecision.ALREADY_DONE, "x", reference)
    assert effects == []
    assert anatomy(rig.machine) == before


def test_without_a_target_the_checks_decide() -> None:
    rig = Rig(work("x"))
    rig.do(DeclareIntent(Intent("old", "s", "x")))
    rig.settle()
    before = anatomy(rig.machine)
    intent = Intent("i", "s", supersedes="old", terms=("nowhere",))
    assert rig.do(Route(intent)) == []
    assert rig.reply is UNPROVEN
    result, _ = route(rig, Route(intent, "", work("new"), Proof("the glossary defines nowhere", ("found",))))
    assert result == RouteResult(
        RouteDecision.ALREADY_DONE, reference="the glossary defines nowhere", findings=("found",)
    )
    assert anatomy(rig.machine) == before


def test_new_without_a_slice_registers_nothing_and_says_what_is_missing() -> None:
    rig = Rig(work("x"))
    rig.settle()
    before = anatomy(rig.machine)
    result, _ = route(rig, Route(Intent("i", "s"), "", None, Proof(findings=("not defined",))))
    assert (result.decision, result.slice_id) == (RouteDecision.NEW, "")
    assert result.findings == ("not defined", "no slice covers this; give a new slice to be enqueued for it")
    assert anatomy(rig.machine) == before


def test_new_enqueues_the_slice_with_the_intent_attached() -> None:
    rig = Rig(cap=1)
    intent = Intent("i", "s", urgency=Urgency.HIGH)
    result, effects = route(rig, Route(intent, "", work("new"), Proof(findings=("not defined",))))
    assert (result.decision, result.slice_id, result.assignment_id) == (RouteDecision.NEW, "new", "new@1")
    assert result.findings == ("not defined",)
    assert result.view is not None
    assert result.view.state is RUNNING
    assert isinstance(effects[0], Launch)
    assert attached(rig) == {"i": ["new"]}


@pytest.mark.parametrize(
    ("slice_", "refusal"), [(work("x"), SliceExistsError), (work("-"), InvalidSliceError), ("new", InvalidSliceError)]
)
def test_a_new_slice_that_is_refused_leaves_everything(slice_: Any, refusal: type[Exception]) -> None:
    rig = Rig(work("x"))
    rig.do(DeclareIntent(Intent("old", "s", "x")))
    rig.settle()
    before = anatomy(rig.machine)
    with pytest.raises(refusal):
        rig.do(Route(Intent("i", "s", supersedes="old"), "", slice_, Proof()))
    assert anatomy(rig.machine) == before


def test_a_scope_that_names_a_canceled_slice_has_no_target() -> None:
    rig = Rig(work("x", paths=["src"]), work("y", paths=["src"]))
    rig.do(Cancel("y"))
    rig.do(Route(Intent("i", "s", "y", terms=("src",))))
    assert rig.reply is UNPROVEN


def test_an_urgent_route_makes_room_like_any_other_intent() -> None:
    rig = Rig(work("x"), work("y"))
    effects = rig.do(Route(Intent("i", "s", "y", Urgency.URGENT)))
    assert [effect.assignment_id for effect in effects] == ["x@1"]
    assert rig.state("x") is SliceState.PREEMPTED


@pytest.mark.parametrize("junk", [None, 7, b"text"])
def test_a_message_must_be_text(junk: Any) -> None:
    with pytest.raises(TypeError, match="message must be text"):
        Route(Intent("i", "s", "x"), junk)


def test_a_proof_must_be_one() -> None:
    with pytest.raises(TypeError):
        Route(Intent("i", "s", "x"), "", None, "done")  # type: ignore[arg-type]
