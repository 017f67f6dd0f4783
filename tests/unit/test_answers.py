"""Why a slice doesn't run, each reason with its evidence; and what views say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from dispatch import answers
from dispatch.commands import Cancel, DeclareIntent, Hold, Pause
from dispatch.intent import Intent, Urgency
from dispatch.slice import SliceState
from dispatch.views import Cap, Explanation, Reason, ReasonCode, StoreStatus
from harness import SessionPhase
from tests.unit.machine_rig import BEGAN_AT, URL, Rig, in_state, work

HERE = StoreStatus("memory:")


def explain(rig: Rig, slice_id: str = "x", store: StoreStatus = HERE) -> Explanation:
    machine = rig.machine
    cap = Cap(rig.cap, f"cap {rig.cap}, by hand")
    return answers.explain(machine.graph, machine.graph.node(slice_id), machine.paused, store, cap)


def reasons(rig: Rig, slice_id: str = "x", store: StoreStatus = HERE) -> list[Reason]:
    return list(explain(rig, slice_id, store).reasons)


def in_review(*blockers: Any) -> Rig:
    """Slices that hold no place and exclude their contenders, and places enough."""
    rig = Rig(*blockers, cap=9)
    for slice_ in blockers:
        rig.report(slice_.id, SessionPhase.CLOSED, pull_request_url=URL)
    return rig


# --- each reason --------------------------------------------------------------------------------------------------


def test_a_hold_is_told_with_its_reason() -> None:
    rig = Rig(work("x", hold="until Monday"))
    assert reasons(rig) == [Reason(ReasonCode.HELD, "held: until Monday")]


def test_a_hold_without_a_reason_is_told_once() -> None:
    rig = Rig(work("x"), cap=0)
    rig.do(Hold("x", ""))
    assert reasons(rig)[0] == Reason(ReasonCode.HELD, "held")


PREDECESSORS = [
    (SliceState.QUEUED, ReasonCode.DEPENDS_ON, "depends on x, which is queued"),
    (SliceState.RUNNING, ReasonCode.DEPENDS_ON, "depends on x, which runs"),
    (SliceState.PREEMPTED, ReasonCode.DEPENDS_ON, "depends on x, which runs"),
    (SliceState.IN_REVIEW, ReasonCode.DEPENDS_ON, "depends on x, which is in review"),
    (SliceState.FAILED, ReasonCode.STRANDED, "depends on x, which has failed: it can't start"),
    (SliceState.CANCELED, ReasonCode.STRANDED, "depends on x, which was canceled: it can't start"),
]


@pytest.mark.parametrize(("state", "code", "text"), PREDECESSORS)
def test_a_predecessor_that_has_not_merged_is_told(state: SliceState, code: ReasonCode, text: str) -> None:
    if state is SliceState.CANCELED:  # what depends on it must be there before
        rig = Rig(work("x"))
        rig.enqueue(work("later", depends_on=("x",)))
        rig.report("x", SessionPhase.CANCELED)
    else:
        rig = in_state(state)
        rig.enqueue(work("later", depends_on=("x",)))
    assert reasons(rig, "later") == [Reason(code, text, "x")]


def test_every_predecessor_is_told_but_the_merged() -> None:
    rig = Rig(work("a"), work("b"), work("c"), work("x", depends_on=("a", "b", "c")), cap=3)
    rig.report("b", SessionPhase.MERGED)
    assert [reason.slice_id for reason in reasons(rig)] == ["a", "c"]


def test_a_contender_as_declared() -> None:
    rig = in_review(work("a"))
    rig.enqueue(work("x", contends=("a",)))
    assert reasons(rig) == [Reason(ReasonCode.CONTENDS, "contends with a, as declared", "a")]


def test_a_contender_as_declared_from_the_other_side() -> None:
    rig = Rig(work("x", hold="not yet"))
    rig.enqueue(work("a", contends=("x",)))
    assert Reason(ReasonCode.CONTENDS, "contends with a, as declared", "a") in reasons(rig)


def test_a_contender_for_a_hotspot() -> None:
    rig = in_review(work("a", hotspots=["schema", "router"]))
    rig.enqueue(work("x", hotspots=["docs", "schema"]))
    told = Reason(ReasonCode.CONTENDS, "contends with a for the hotspot schema", "a", "schema")
    assert reasons(rig) == [told]


def test_a_contender_by_pattern_with_a_witness() -> None:
    rig = in_review(work("a", paths=["src/*.py", "docs/**"]))
    rig.enqueue(work("x", paths=["lib", "src/m?in.p[xy]"]))
    (told,) = reasons(rig)
    assert (told.code, told.slice_id, told.pattern) == (ReasonCode.CONTENDS, "a", "src/*.py")
    assert told.witness.startswith("src/m")
    assert told.witness.endswith("in.py")
    assert told.text == f"contends with a: src/m?in.p[xy] and src/*.py both match {told.witness}"


def test_every_piece_of_evidence_against_every_contender() -> None:
    rig = in_review(work("a", hotspots=["schema"], paths=["src/a.py"]))
    rig.enqueue(work("b", paths=["src/b.py"]))
    rig.enqueue(work("x", hotspots=["schema"], paths=["src"], contends=("b",)))
    assert [(reason.slice_id, reason.pattern, reason.witness) for reason in reasons(rig)] == [
        ("a", "schema", ""),
        ("a", "src/a.py", "src/a.py"),
        ("b", "", ""),
        ("b", "src/b.py", "src/b.py"),
    ]


def test_no_place_is_told_with_the_derivation_of_the_cap() -> None:
    rig = in_state(SliceState.QUEUED)
    assert reasons(rig) == [Reason(ReasonCode.CAP, "all places are taken: 1 run; cap 1, by hand")]


def test_room_for_another_that_it_contends_with() -> None:
    rig = Rig(work("a"))
    rig.enqueue(work("now", hotspots=["schema"]), work("x", hotspots=["schema"]))
    rig.urgent("now")
    assert Reason(ReasonCode.ROOM, "room is being made for the urgent now, which it contends with", "now") in reasons(
        rig
    )


def test_a_place_that_is_free_but_kept() -> None:
    rig = Rig(work("a", hotspots=["h"]), work("now", hotspots=["h"]), work("x"), cap=1)
    rig.urgent("now")
    assert rig.states() == {"a": "preempted", "now": "queued", "x": "queued"}
    rig.do(Pause())
    rig.report("a", SessionPhase.CLOSED, detail="stopped")
    told = [reason for reason in reasons(rig) if reason.code is not ReasonCode.PAUSED]
    assert told == [Reason(ReasonCode.ROOM, "the places left are kept for urgent slices: now")]


def test_what_room_is_made_for_is_told_so() -> None:
    rig = in_state(SliceState.PREEMPTED)
    waits = "room is being made for it: it starts when those asked to stop have stopped"
    assert Reason(ReasonCode.ROOM, waits) in reasons(rig, "now")


def test_a_pause_is_told_with_its_reason() -> None:
    rig = Rig()
    rig.do(Pause("lunch"))
    rig.enqueue(work("x"))
    assert reasons(rig) == [Reason(ReasonCode.PAUSED, "the graph is paused: lunch")]


def test_a_store_out_of_reach_is_told_with_its_problem() -> None:
    rig = Rig()
    rig.machine.suspended = True
    rig.enqueue(work("x"))
    text = "the store is out of reach, so nothing is launched: disk full"
    assert reasons(rig, store=attrs.evolve(HERE, reachable=False, problem="disk full")) == [
        Reason(ReasonCode.STORE, text)
    ]


STATES = [
    (SliceState.RUNNING, "it runs"),
    (SliceState.PREEMPTED, "it runs, and was asked to stop to make room for an urgent slice"),
    (SliceState.IN_REVIEW, "its pull request waits to be merged"),
    (SliceState.FAILED, "it failed: no reason was given"),
    (SliceState.MERGED, "it has merged"),
    (SliceState.CANCELED, "it was canceled"),
]


@pytest.mark.parametrize(("state", "text"), STATES)
def test_what_does_not_wait_says_where_it_stands(state: SliceState, text: str) -> None:
    assert reasons(in_state(state)) == [Reason(ReasonCode.STATE, text)]


def test_a_failure_is_told() -> None:
    rig = Rig(work("x"))
    rig.report("x", SessionPhase.FAILED, error="no such command")
    assert reasons(rig) == [Reason(ReasonCode.STATE, "it failed: no such command")]


def test_a_cancel_that_waits_is_told() -> None:
    rig = in_state(SliceState.RUNNING, canceling=True)
    assert reasons(rig) == [Reason(ReasonCode.STATE, "it runs, and is to be canceled")]


def test_all_reasons_are_told_and_what_the_operator_can_change_first() -> None:
    rig = in_review(work("a", hotspots=["h"]))
    rig.enqueue(work("b"))
    rig.do(Pause("lunch"))
    rig.enqueue(work("x", hold="wait", depends_on=("b",), hotspots=["h"]))
    store = attrs.evolve(HERE, reachable=False, problem="disk full")
    codes = [reason.code for reason in reasons(rig, store=store)]
    held, depends_on, paused = ReasonCode.HELD, ReasonCode.DEPENDS_ON, ReasonCode.PAUSED
    assert codes == [held, depends_on, paused, ReasonCode.STORE, ReasonCode.CONTENDS]


def test_the_codes_are_stable() -> None:
    codes = ["paused", "store", "held", "depends_on", "stranded", "contends", "room", "cap", "state"]
    assert [code.value for code in ReasonCode] == codes


# --- views --------------------------------------------------------------------------------------------------------


def test_a_priority_says_why_a_slice_ranks_where_it_does() -> None:
    rig = Rig(work("a"), work("b"), work("c", depends_on=("b",)), work("d", hold="wait"), cap=1)
    rig.do(DeclareIntent(Intent("i", "s", "d", Urgency.HIGH)))
    graph = rig.machine.graph
    told = {view.id: view.priority for view in answers.views(graph, tuple(graph.nodes.values()))}
    columns = {name: (p.critical_path, p.learned, p.urgency, p.declared_order, p.rank) for name, p in told.items()}
    assert columns == {
        "a": (1, 0, None, 1, None),
        "b": (2, 0, None, 2, 1),
        "c": (1, 0, None, 3, None),
        "d": (1, 0, Urgency.HIGH, 4, 2),
    }


def test_a_view_says_what_it_waits_for() -> None:
    rig = Rig(work("a"), work("b"), work("x", depends_on=("b", "a")))
    assert explain(rig).view.waits_for == ("b", "a")
    rig.report("a", SessionPhase.MERGED)
    assert explain(rig).view.waits_for == ("b",)


FACTS: list[tuple[str, Callable[[Rig], object], object]] = [
    ("state", lambda rig: rig.do(Pause()), SliceState.RUNNING),
    ("assignment_id", lambda rig: rig.do(Pause()), "x@1"),
    ("turns", lambda rig: rig.report("x", SessionPhase.RUNNING, turns=7), 7),
    ("branch", lambda rig: rig.report("x", SessionPhase.RUNNING, branch="mine"), "mine"),
    ("pull_request_url", lambda rig: rig.report("x", SessionPhase.RUNNING, pull_request_url=URL), URL),
    ("canceling", lambda rig: rig.do(Cancel("x")), True),
    ("hold", lambda rig: rig.do(Hold("x", "wait")), "wait"),
    ("intents", lambda rig: rig.urgent("x"), ("urgent-x",)),
    ("error", lambda rig: rig.report("x", SessionPhase.FAILED, error="e"), "e"),
    ("checkpoint", lambda rig: rig.report("x", SessionPhase.CLOSED, checkpoint="c"), "c"),
    ("closes", lambda rig: rig.report("x", SessionPhase.CLOSED), 1),
    ("attempt", lambda rig: rig.report("x", SessionPhase.CLOSED), 2),
    ("ended_at", lambda rig: rig.report("x", SessionPhase.FAILED), BEGAN_AT),
    ("enqueued_at", lambda rig: rig.report("x", SessionPhase.FAILED), BEGAN_AT),
    ("started_at", lambda rig: rig.report("x", SessionPhase.FAILED), BEGAN_AT),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "after", "seen"), FACTS)
def test_a_view_shows_the_facts(fact: str, after: Callable[[Rig], object], seen: object) -> None:
    rig = in_state(SliceState.RUNNING)
    after(rig)
    assert getattr(explain(rig).view, fact) == seen


def test_a_snapshot_shows_the_whole() -> None:
    rig = Rig(work("a"), work("b"), work("c"), work("now", contends=("a",)), cap=2)
    rig.do(DeclareIntent(Intent("later", "s", "c", Urgency.LOW)))
    rig.urgent("now")
    rig.do(Pause("lunch"))
    cap = Cap(2, "by hand")
    seen = answers.snapshot(rig.machine.graph, "default", 7.0, "lunch", HERE, cap)
    assert (seen.graph, seen.taken_at, seen.paused, seen.cap, seen.store) == ("default", 7.0, "lunch", cap, HERE)
    assert [view.id for view in seen.slices] == ["a", "b", "c", "now"]
    assert (seen.running, seen.room, seen.frontier) == (("a", "b"), ("now",), ("now", "c"))
    assert [(known.intent.id, known.attached) for known in seen.intents] == [
        ("later", ("c",)),
        ("urgent-now", ("now",)),
    ]


def test_the_frontier_is_in_dispatch_order_with_the_held() -> None:
    rig = Rig(work("a"), work("b"), work("c", hold="wait"), work("d", depends_on=("c",)), work("e"), cap=1)
    rig.urgent("e")
    assert [node.id for node in rig.machine.graph.frontier()] == ["c", "e", "b"]
