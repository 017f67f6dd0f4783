"""Every rule of the contract's tables, at the machine itself: no thread, no clock, no store."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from dispatch.commands import (
    AskToStop,
    Cancel,
    Command,
    DeclareIntent,
    Effect,
    Enqueue,
    Hold,
    Launch,
    MarkMerged,
    Observe,
    Pause,
    Release,
    RequestFailed,
    Resume,
    Retry,
    Revise,
    Route,
    Send,
)
from dispatch.errors import (
    CycleError,
    DispatchError,
    InvalidCommandError,
    InvalidIntentError,
    InvalidSliceError,
    InvalidTextError,
    SliceExistsError,
    SliceFinishedError,
    UnknownIntentError,
    UnknownSliceError,
)
from dispatch.intent import Intent, Urgency
from dispatch.machine import CUT_OFF, ENDED, TRANSITIONS
from dispatch.slice import OCCUPYING, Slice, SliceState
from dispatch.store import Contents, GraphRow
from harness import Recipe, SessionPhase, SessionState
from tests.unit.machine_rig import BEGAN_AT, URL, Rig, anatomy, in_state, work

QUEUED, RUNNING, PREEMPTED = SliceState.QUEUED, SliceState.RUNNING, SliceState.PREEMPTED
IN_REVIEW, MERGED, FAILED, CANCELED = SliceState.IN_REVIEW, SliceState.MERGED, SliceState.FAILED, SliceState.CANCELED
FINISHED, INVALID = SliceFinishedError, InvalidCommandError

# --- the table of commands ----------------------------------------------------------------------------------------


@attrs.frozen
class Cell:
    """Where a command takes a slice, and whether its session is asked to stop by it."""

    then: SliceState
    asked: bool = False


Row = tuple[Cell | type[DispatchError], ...]
SAME = tuple(map(Cell, (QUEUED, RUNNING, PREEMPTED, IN_REVIEW, FAILED)))

# One column per state, in this order; as in the contract.
STATES = (QUEUED, RUNNING, PREEMPTED, IN_REVIEW, FAILED, MERGED, CANCELED)
TABLE: dict[str, Row] = {
    "merge": (
        *(Cell(MERGED), Cell(MERGED, asked=True), Cell(MERGED)),
        *(Cell(MERGED), Cell(MERGED), Cell(MERGED), FINISHED),
    ),
    "cancel": (
        *(Cell(CANCELED), Cell(RUNNING, asked=True), Cell(PREEMPTED)),
        *(Cell(CANCELED), Cell(CANCELED), FINISHED, FINISHED),
    ),
    "retry": (INVALID, INVALID, INVALID, Cell(QUEUED), Cell(QUEUED), FINISHED, FINISHED),
    "revise": (Cell(QUEUED), INVALID, INVALID, INVALID, Cell(FAILED), FINISHED, FINISHED),
    "hold": (*SAME, FINISHED, FINISHED),
    "release": (*SAME, FINISHED, FINISHED),
}
COMMANDS: dict[str, Callable[[str], Command]] = {
    "merge": MarkMerged,
    "cancel": Cancel,
    "retry": Retry,
    "revise": lambda slice_id: Revise(work(slice_id)),
    "hold": Hold,
    "release": Release,
}
CELLS = [(name, state, cell) for name, row in TABLE.items() for state, cell in zip(STATES, row, strict=True)]
ALLOWED = [(name, state, cell) for name, state, cell in CELLS if isinstance(cell, Cell)]
REFUSED = [(name, state, cell) for name, state, cell in CELLS if not isinstance(cell, Cell)]


def of_x(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if effect.assignment_id.startswith("x@")]


@pytest.mark.parametrize(("name", "state", "cell"), ALLOWED)
def test_a_command_does_what_the_table_says(name: str, state: SliceState, cell: Cell) -> None:
    rig = in_state(state)
    if name == "retry":  # with a place free, the pass would start it at once
        rig.do(Pause())
    effects = rig.do(COMMANDS[name]("x"))
    assert rig.state("x") is cell.then
    assert of_x(effects) == ([AskToStop("x@1")] if cell.asked else [])


@pytest.mark.parametrize(("name", "state", "refusal"), REFUSED)
def test_a_command_is_refused_where_the_table_says_so(
    name: str, state: SliceState, refusal: type[DispatchError]
) -> None:
    rig = in_state(state)
    before = anatomy(rig.machine)
    with pytest.raises(DispatchError) as refused:
        rig.do(COMMANDS[name]("x"))
    assert type(refused.value) is refusal
    assert (refused.value.slice_id, refused.value.state) == ("x", state.value)  # type: ignore[attr-defined]
    assert anatomy(rig.machine) == before
    assert not rig.machine.changed


@pytest.mark.parametrize("state", [QUEUED, FAILED])
def test_a_revised_slice_is_what_it_was_revised_to(state: SliceState) -> None:
    rig = in_state(state)
    rig.do(Hold("x", "wait"))
    rig.settle()
    revised = work("x", paths=("new/**",), kind="k", title="mended", hold="ignored")
    rig.do(Revise(revised))
    node = rig.machine.graph.node("x")
    assert (node.slice, node.hold, node.attempt) == (revised, "wait", 0 if state is QUEUED else 1)
    assert rig.machine.changes().revised == ("x",)
    rig.settle()
    assert not rig.machine.changed
    rig.machine.graph.check()


def test_a_revised_slice_contends_for_what_it_touches_now() -> None:
    rig = Rig(work("a", paths=("a",)), work("x", paths=("a",)), work("y", paths=("y",)), cap=0)
    rig.open(3)
    assert rig.running() == {"a", "y"}
    rig.do(Revise(work("x", paths=("x",))))
    assert rig.running() == {"a", "x", "y"}


def test_a_slice_that_is_revised_while_room_is_made_for_it_needs_room_for_what_it_touches_now() -> None:
    rig = Rig(work("a", paths=("a",)), work("b", paths=("b",)), cap=2)
    rig.enqueue(work("x", paths=("a",)))
    rig.urgent("x")
    assert rig.states() == {"a": "preempted", "b": "running", "x": "queued"}
    rig.do(Revise(work("x", paths=("b",))))
    assert rig.states() == {"a": "preempted", "b": "preempted", "x": "queued"}
    rig.machine.graph.check()
    rig.report("b", SessionPhase.CANCELED)
    assert rig.running() == {"a", "x"}


@pytest.mark.parametrize("field", ["depends_on", "required_by", "contends"])
def test_edges_are_not_revised(field: str) -> None:
    rig = Rig(work("other"), work("x"), cap=0)
    before = anatomy(rig.machine)
    with pytest.raises(InvalidSliceError) as refused:
        rig.do(Revise(work("x", **{field: ("other",)})))
    assert refused.value.field == field
    assert anatomy(rig.machine) == before


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"revise"}))
@pytest.mark.parametrize("unknown", ["absent", "", None, 7, ["x"]])
def test_a_command_for_no_slice_is_refused(name: str, unknown: Any) -> None:
    rig = in_state(RUNNING)
    before = anatomy(rig.machine)
    with pytest.raises(UnknownSliceError) as refused:
        rig.do(COMMANDS[name](unknown))
    assert refused.value.slice_id == str(unknown)
    assert anatomy(rig.machine) == before


# --- the table of reports -----------------------------------------------------------------------------------------

# Without a cancel pending; and with one. Of each: without, and with a pull request recorded.
REPORTS: dict[tuple[SessionPhase, SliceState], tuple[SliceState, SliceState, SliceState, SliceState]] = {
    (SessionPhase.RUNNING, RUNNING): (RUNNING, RUNNING, RUNNING, RUNNING),
    (SessionPhase.RUNNING, PREEMPTED): (PREEMPTED, PREEMPTED, PREEMPTED, PREEMPTED),
    (SessionPhase.MERGED, RUNNING): (MERGED, MERGED, MERGED, MERGED),
    (SessionPhase.MERGED, PREEMPTED): (MERGED, MERGED, MERGED, MERGED),
    (SessionPhase.FAILED, RUNNING): (FAILED, FAILED, FAILED, FAILED),
    (SessionPhase.FAILED, PREEMPTED): (FAILED, FAILED, FAILED, FAILED),
    (SessionPhase.CANCELED, RUNNING): (CANCELED, CANCELED, CANCELED, CANCELED),
    (SessionPhase.CANCELED, PREEMPTED): (QUEUED, QUEUED, CANCELED, CANCELED),
    (SessionPhase.CLOSED, RUNNING): (QUEUED, IN_REVIEW, CANCELED, CANCELED),
    (SessionPhase.CLOSED, PREEMPTED): (QUEUED, IN_REVIEW, CANCELED, CANCELED),
}
COUNTS_A_CLOSE = (SessionPhase.CLOSED, RUNNING, False, False)
REPORT_CELLS = [
    (phase, state, canceling, pull_request, then)
    for (phase, state), outcomes in REPORTS.items()
    for (canceling, pull_request), then in zip(itertools.product([False, True], repeat=2), outcomes, strict=True)
]


@pytest.mark.parametrize(("phase", "state", "canceling", "pull_request", "then"), REPORT_CELLS)
def test_a_report_does_what_the_table_says(
    phase: SessionPhase, state: SliceState, canceling: bool, pull_request: bool, then: SliceState
) -> None:
    rig = in_state(state, canceling, pull_request)
    rig.do(Pause())
    rig.now += 5
    effects = rig.report("x", phase, turns=3, error="it broke")
    node = rig.machine.graph.node("x")
    assert node.state is then
    assert effects == []
    assert node.closes == ((phase, state, canceling, pull_request) == COUNTS_A_CLOSE)
    assert node.turns == 3
    assert node.pull_request_url == (URL if pull_request else "")
    assert node.canceling == (canceling and phase is SessionPhase.RUNNING)
    assert node.error == ("" if phase in (SessionPhase.MERGED, SessionPhase.RUNNING) else "it broke")
    if then is QUEUED:
        assert node.checkpoint == "it broke"
    if phase is not SessionPhase.RUNNING:
        assert (node.ended_at, node.ran_s) == (BEGAN_AT + 5, 5)


def test_a_pull_request_that_comes_with_the_last_report_counts() -> None:
    rig = in_state(RUNNING)
    rig.report("x", SessionPhase.CLOSED, pull_request_url=URL)
    assert rig.state("x") is IN_REVIEW


@pytest.mark.parametrize("phase", SessionPhase)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("assignment", ["x@0", "x@2", "absent@1", "x", ""])
def test_a_report_of_no_current_session_changes_nothing(
    state: SliceState, phase: SessionPhase, assignment: str
) -> None:
    rig = in_state(state)
    before = anatomy(rig.machine)
    assert rig.do(Observe(SessionState(assignment, phase, 9, "b", URL, "e", "d", "c"))) == []
    assert anatomy(rig.machine) == before


@pytest.mark.parametrize("phase", SessionPhase)
@pytest.mark.parametrize("state", [state for state in STATES if state not in OCCUPYING])
def test_a_report_of_a_slice_without_a_session_changes_nothing(state: SliceState, phase: SessionPhase) -> None:
    rig = in_state(state)
    before = anatomy(rig.machine)
    assert rig.report("x", phase, turns=9, pull_request_url=URL) == []
    assert anatomy(rig.machine) == before


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_last_close_allowed_is_a_failure(most: int) -> None:
    rig = Rig(work("x", recipe=Recipe(max_attempts=most)))
    for close in range(1, most + 1):
        assert rig.state("x") is RUNNING
        rig.report("x", SessionPhase.CLOSED, detail=f"close {close}")
    node = rig.machine.graph.node("x")
    assert (node.state, node.closes, node.error, node.attempt) == (FAILED, most, f"close {most}", most)


def test_a_slice_that_closed_too_often_says_so_if_nothing_else_does() -> None:
    rig = Rig(work("x", recipe=Recipe(max_attempts=2)))
    rig.report("x", SessionPhase.CLOSED)
    rig.report("x", SessionPhase.CLOSED)
    assert rig.machine.graph.node("x").error == "closed 2 times without a merge"


def test_retry_forgets_closes_and_pull_request() -> None:
    rig = Rig(work("x", recipe=Recipe(max_attempts=1)))
    rig.report("x", SessionPhase.CLOSED)
    assert rig.state("x") is FAILED
    rig.do(Retry("x"))
    node = rig.machine.graph.node("x")
    assert (node.state, node.closes, node.attempt) == (RUNNING, 0, 2)
    rig.report("x", SessionPhase.CLOSED, pull_request_url=URL)
    assert rig.state("x") is IN_REVIEW
    rig.do(Retry("x"))
    assert (node.state, node.closes, node.pull_request_url, node.attempt) == (RUNNING, 0, "", 3)


# The first of these that is there is kept; and there is always something.
CHECKPOINTS = [
    ({"checkpoint": "c", "detail": "d", "error": "e"}, "c"),
    ({"detail": "d", "error": "e"}, "d"),
    ({"error": "e"}, "e"),
    ({}, ENDED),
]


@pytest.mark.parametrize(("fields", "kept"), CHECKPOINTS)
def test_what_goes_back_to_the_queue_has_a_checkpoint(fields: dict[str, str], kept: str) -> None:
    rig = Rig(work("x", recipe=Recipe(prompt="Do it.")))
    (launch,) = rig.report("x", SessionPhase.CLOSED, **fields)
    assert isinstance(launch, Launch)
    assert launch.assignment.checkpoint == kept
    assert launch.assignment.task == f"x\n\nDo it.\n\nFrom the previous attempt:\n{kept}"


def test_a_report_that_says_nothing_leaves_an_earlier_checkpoint() -> None:
    rig = Rig(work("x"))
    rig.report("x", SessionPhase.CLOSED, checkpoint="half done")
    (launch,) = rig.report("x", SessionPhase.CLOSED)
    assert isinstance(launch, Launch)
    assert launch.assignment.checkpoint == "half done"


# --- transitions --------------------------------------------------------------------------------------------------


def moves_of_the_tables() -> set[tuple[SliceState, SliceState]]:
    by_command = {(state, cell.then) for _, state, cell in ALLOWED}
    by_report = {(state, then) for _, state, _, _, then in REPORT_CELLS}
    by_pass = {(QUEUED, RUNNING), (RUNNING, PREEMPTED)}
    by_last_close = {(RUNNING, FAILED)}
    by_restart = {(state, then) for state in OCCUPYING for then in (QUEUED, CANCELED)}
    moves = by_command | by_report | by_pass | by_last_close | by_restart
    return {(before, after) for before, after in moves if before is not after}


def test_the_transitions_are_those_of_the_tables() -> None:
    assert {(before, after) for before, afters in TRANSITIONS.items() for after in afters} == moves_of_the_tables()


# --- what commands do besides -------------------------------------------------------------------------------------


def test_a_session_is_asked_to_stop_once() -> None:
    rig = in_state(RUNNING)
    assert rig.do(Cancel("x")) == [AskToStop("x@1")]
    assert rig.do(Cancel("x")) == []
    assert of_x(rig.do(MarkMerged("x"))) == []


def test_a_session_that_could_not_be_asked_is_asked_by_the_next_cancel() -> None:
    rig = in_state(RUNNING)
    rig.do(Cancel("x"))
    rig.do(RequestFailed("x@1", "no answer\0"))
    assert rig.machine.graph.node("x").error == "no answer\ufffd"
    assert rig.do(Cancel("x")) == [AskToStop("x@1")]


def test_a_failed_request_to_a_session_that_has_ended_is_nothing() -> None:
    rig = in_state(FAILED)
    before = anatomy(rig.machine)
    assert rig.do(RequestFailed("x@1", "no answer")) == []
    assert anatomy(rig.machine) == before


def test_a_session_of_a_merged_slice_counts_no_more() -> None:
    rig = Rig(work("x"), work("y"))
    effects = rig.do(MarkMerged("x"))
    assert isinstance(effects[1], Launch)
    assert [effect.assignment_id for effect in effects] == ["x@1", "y@1"]
    assert rig.report("x", SessionPhase.FAILED) == []
    assert rig.states() == {"x": "merged", "y": "running"}


def test_marking_as_merged_ends_the_attempt_and_its_time_counts() -> None:
    rig = Rig(work("x"))
    rig.now += 60
    rig.do(MarkMerged("x"))
    (row,) = rig.machine.changes().attempts
    assert (row.attempt, row.outcome, row.started_at, row.ended_at) == (1, "merged", BEGAN_AT, BEGAN_AT + 60)
    node = rig.machine.graph.node("x")
    assert (node.ran_s, node.ended_at) == (60, BEGAN_AT + 60)


def test_merged_answers_again_and_changes_nothing() -> None:
    rig = Rig(work("x"), work("y", depends_on=("x",)))
    rig.do(MarkMerged("x", URL))
    assert (rig.reply.slice.pull_request_url, [view.id for view in rig.reply.released]) == (URL, ["y"])
    rig.settle()
    before = anatomy(rig.machine)
    assert rig.do(MarkMerged("x", "another")) == []
    assert (rig.reply.slice.pull_request_url, rig.reply.released) == (URL, ())
    assert anatomy(rig.machine) == before


def test_merging_tells_what_it_released_in_enqueue_order() -> None:
    rig = Rig(work("x"), cap=1)
    rig.enqueue(work("b", depends_on=("x",)), work("a", depends_on=("x",)), work("c", depends_on=("x", "a")))
    rig.do(MarkMerged("x"))
    assert [(view.id, view.state, view.priority.rank) for view in rig.reply.released] == [
        ("b", QUEUED, 1),  # a, before which there is one more, has got the place
        ("a", RUNNING, None),
    ]


def test_what_is_marked_merged_has_no_error_any_more() -> None:
    rig = Rig(work("x"))
    rig.report("x", SessionPhase.FAILED, error="broke")
    rig.do(MarkMerged("x"))
    assert rig.machine.graph.node("x").error == ""


def test_every_change_is_written_once_the_one_before_was() -> None:
    """Whatever is done to a slice or an intent that is stored already."""
    steps: list[tuple[Command, str]] = [
        (Hold("x", "wait"), "x"),
        (Release("x"), "x"),
        (Cancel("x"), "x"),
        (Observe(SessionState("x@1", SessionPhase.RUNNING, 1)), "x"),
        (RequestFailed("x@1", "no answer"), "x"),
        (Observe(SessionState("x@1", SessionPhase.FAILED)), "x"),
        (Retry("x"), "x"),
        (MarkMerged("x"), "x"),
    ]
    rig = Rig(work("x"))
    for command, name in steps:
        rig.settle()
        rig.do(command)
        assert rig.machine.unwritten() == (name,), command
        assert [row.slice.id for row in rig.machine.changes().slices] == [name]
    rig.do(DeclareIntent(Intent("i", "s")))
    rig.settle()
    rig.do(DeclareIntent(Intent("j", "s", supersedes="i")))
    changes = rig.machine.changes()
    assert ([row.intent.id for row in changes.intents], changes.forgotten) == (["j"], ("i",))


def test_hold_keeps_the_first_reason_and_has_one() -> None:
    rig = in_state(QUEUED)
    rig.do(Hold("x"))
    rig.settle()
    before = anatomy(rig.machine)
    rig.do(Hold("x", "because"))
    assert rig.machine.graph.node("x").hold == "held"
    assert anatomy(rig.machine) == before


@pytest.mark.parametrize("state", [RUNNING, PREEMPTED])
def test_hold_counts_from_the_next_return_to_the_queue(state: SliceState) -> None:
    rig = in_state(state)
    rig.open(2)
    rig.do(Hold("x", "wait"))
    assert rig.state("x") is state
    assert of_x(rig.report("x", SessionPhase.CLOSED)) == []
    assert rig.state("x") is QUEUED
    (launch,) = of_x(rig.do(Release("x")))
    assert isinstance(launch, Launch)


@pytest.mark.parametrize("state", [IN_REVIEW, FAILED])
def test_hold_counts_after_a_retry(state: SliceState) -> None:
    rig = in_state(state)
    rig.do(Hold("x", "wait"))
    assert rig.do(Retry("x")) == []
    assert rig.state("x") is QUEUED


def test_release_of_what_is_not_held_changes_nothing() -> None:
    rig = in_state(QUEUED)
    before = anatomy(rig.machine)
    rig.do(Release("x", "anyway"))
    assert anatomy(rig.machine) == before


def test_a_slice_enqueued_with_a_hold_is_held() -> None:
    rig = Rig()
    assert rig.enqueue(work("x", hold="wait")) == []
    assert rig.machine.graph.node("x").hold == "wait"


def test_paused_nothing_starts_and_nobody_is_preempted() -> None:
    rig = Rig(work("x"))
    rig.do(Pause("lunch"))
    rig.enqueue(work("y"), work("z"))
    assert rig.urgent("z") == []
    assert rig.open(5) == []
    assert rig.do(Pause("dinner")) == []
    assert rig.machine.paused == "lunch"
    assert [effect.assignment_id for effect in rig.do(Resume())] == ["z@1", "y@1"]
    assert rig.machine.paused == ""


def test_pausing_again_and_resuming_again_change_nothing() -> None:
    rig = in_state(RUNNING)
    for one in (Pause("lunch"), Resume()):
        rig.do(one)
        rig.settle()
        before = anatomy(rig.machine)
        rig.do(one)
        assert anatomy(rig.machine) == before


# --- enqueue ------------------------------------------------------------------------------------------------------

LONG = "x" * 257


def rig_for_refusals() -> Rig:
    """With slices in all states whose names tell them, and a way from `first` to `last`."""
    rig = Rig(cap=3)
    rig.enqueue(work("failed"), work("canceled"), work("merged"))
    for name in ("failed", "canceled", "merged"):
        rig.report(name, SessionPhase(name))
    rig.enqueue(work("review"))
    rig.report("review", SessionPhase.CLOSED, pull_request_url=URL)
    rig.open(1)
    rig.enqueue(work("running"))
    rig.enqueue(work("first"), work("last", depends_on=("first",)))
    rig.settle()
    return rig


# Each flaw comes before those below it: a slice that has two is refused for the first.
FLAWS: list[tuple[dict[str, Any], type[DispatchError]]] = [
    ({"title": LONG}, InvalidSliceError),
    ({"id": "merged"}, SliceExistsError),
    ({"depends_on": ("x",)}, CycleError),
    ({"depends_on": ("absent",)}, UnknownSliceError),
    ({"required_by": ("x",)}, CycleError),
    ({"required_by": ("absent",)}, UnknownSliceError),
    ({"contends": ("x",)}, CycleError),
    ({"contends": ("absent",)}, UnknownSliceError),
    ({"depends_on": ("canceled",)}, SliceFinishedError),
    ({"required_by": ("running",)}, SliceFinishedError),
    ({"depends_on": ("last",), "required_by": ("first",)}, CycleError),
]
MORE_FLAWS: list[tuple[dict[str, Any], type[DispatchError]]] = [
    ({"id": ""}, InvalidSliceError),
    ({"id": "running"}, SliceExistsError),
    ({"id": "canceled"}, SliceExistsError),
    ({"required_by": ("review",)}, SliceFinishedError),
    ({"required_by": ("merged",)}, SliceFinishedError),
    ({"required_by": ("canceled",)}, SliceFinishedError),
    ({"depends_on": ("absent", "x")}, UnknownSliceError),
    ({"depends_on": ("x", "absent")}, CycleError),
    ({"depends_on": ("first",), "required_by": ("first",)}, CycleError),
]
FINE: list[dict[str, Any]] = [
    {"depends_on": ("merged",)},
    {"depends_on": ("failed", "review", "running")},
    {"required_by": ("failed", "last", "first")},
    {"contends": ("merged", "canceled", "failed", "running")},
    {"depends_on": ("first", "first"), "contends": ("first", "first")},
    {"depends_on": ["first"], "required_by": ["last"]},
]


def together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both flaws in one slice, the first of two names first."""
    both = {**other, **one}
    for name in one.keys() & other.keys() - {"id", "title"}:
        both[name] = (*one[name], *other[name])
    return both


def assert_refused(rig: Rig, slices: tuple[Any, ...], refusal: type[DispatchError]) -> DispatchError:
    before = anatomy(rig.machine)
    with pytest.raises(DispatchError) as refused:
        rig.do(Enqueue(slices))
    assert type(refused.value) is refusal
    assert anatomy(rig.machine) == before
    assert not rig.machine.changed
    return refused.value


@pytest.mark.parametrize(("flaw", "refusal"), [*FLAWS, *MORE_FLAWS])
def test_a_slice_with_a_flaw_is_refused(flaw: dict[str, Any], refusal: type[DispatchError]) -> None:
    assert_refused(rig_for_refusals(), (Slice(**{"id": "x", **flaw}),), refusal)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(FLAWS, 2)))
def test_of_two_flaws_the_first_is_told(
    one: tuple[dict[str, Any], type[DispatchError]], other: tuple[dict[str, Any], type[DispatchError]]
) -> None:
    both = {"id": "x", **together(one[0], other[0])}
    own = both["id"]  # which a slice that names itself names
    edges = {name: [own if id_ == "x" else id_ for id_ in ids] for name, ids in both.items() if isinstance(ids, tuple)}
    assert_refused(rig_for_refusals(), (Slice(**{**both, **edges}),), one[1])


@pytest.mark.parametrize("fields", FINE)
def test_a_slice_without_a_flaw_is_taken(fields: dict[str, Any]) -> None:
    rig = rig_for_refusals()
    rig.enqueue(Slice("x", **fields))
    assert rig.state("x") is QUEUED


@pytest.mark.parametrize(("flaw", "refusal"), FLAWS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_with_a_flaw_is_refused_as_a_whole(
    flaw: dict[str, Any], refusal: type[DispatchError], place: int
) -> None:
    batch = [work("y"), work("z", depends_on=("y",))]
    batch.insert(place, Slice(**{"id": "x", **flaw}))
    assert_refused(rig_for_refusals(), tuple(batch), refusal)


@pytest.mark.parametrize("junk", [None, "x", 7, {"id": "x"}, Recipe()])
def test_what_is_no_slice_is_refused(junk: Any) -> None:
    assert_refused(rig_for_refusals(), (work("y"), junk), InvalidSliceError)


def test_an_id_twice_in_a_batch_is_refused() -> None:
    assert_refused(rig_for_refusals(), (work("y"), work("y")), SliceExistsError)


@pytest.mark.parametrize(
    ("batch", "cycle"),
    [
        ((work("a", depends_on=("b",)), work("b", depends_on=("a",))), ("a", "b", "a")),
        ((work("a", required_by=("b",)), work("b", required_by=("a",))), ("a", "b", "a")),
        ((work("a", depends_on=("last",), required_by=("first",)),), ("a", "last", "first", "a")),
        (
            (work("b", required_by=("first",), depends_on=("a",)), work("a", depends_on=("last",))),
            ("b", "a", "last", "first", "b"),
        ),
    ],
)
def test_a_cycle_is_spelled_out(batch: tuple[Slice, ...], cycle: tuple[str, ...]) -> None:
    refused = assert_refused(rig_for_refusals(), batch, CycleError)
    assert isinstance(refused, CycleError)
    told = refused.cycle
    assert told[0] == told[-1]
    turns = [(*told[i:-1], *told[:i], told[i]) for i in range(len(told) - 1)]
    assert cycle in turns
    assert " -> ".join(told) in str(refused)


# --- intents ------------------------------------------------------------------------------------------------------


def test_intents_that_are_refused_change_nothing() -> None:
    rig = rig_for_refusals()
    rig.do(DeclareIntent(Intent("known", "s", "first")))
    rig.settle()
    before = anatomy(rig.machine)
    naive = dt.datetime(2030, 1, 1)
    refusals: list[tuple[Command, type[DispatchError]]] = [
        (DeclareIntent(Intent("", "s")), InvalidIntentError),
        (DeclareIntent(Intent("i", "s", deadline=naive)), InvalidIntentError),
        (DeclareIntent("now"), InvalidIntentError),  # type: ignore[arg-type]
        (DeclareIntent(Intent("i", "s", supersedes="known"), known=True), UnknownIntentError),
        (DeclareIntent(Intent("known", "s", urgency=7), known=True), InvalidIntentError),  # type: ignore[arg-type]
        (Route(Intent("", "s")), InvalidIntentError),
    ]
    for command, refusal in refusals:
        with pytest.raises(refusal):
            rig.do(command)
        assert anatomy(rig.machine) == before


def test_lists_are_taken_as_they_were_when_they_were_given() -> None:
    terms, paths = ["src"], ["src/a"]
    rig = Rig()
    rig.enqueue(Slice("x", touch=attrs.evolve(work("x").touch, paths=paths)))  # type: ignore[arg-type]
    rig.do(DeclareIntent(Intent("i", "s", terms=terms)))  # type: ignore[arg-type]
    terms.append("lib")
    paths.append("lib/b")
    changes = rig.machine.changes()
    assert changes.intents[0].intent.terms == ("src",)
    assert changes.slices[0].slice.touch.paths == ("src/a",)


# --- what goes out ------------------------------------------------------------------------------------------------


def test_each_row_is_written_in_its_last_state_and_once() -> None:
    rig = Rig(work("x"), work("y"))
    rig.report("x", SessionPhase.MERGED)
    rig.do(DeclareIntent(Intent("i", "s", "y")))
    rig.do(DeclareIntent(Intent("j", "s", "y", supersedes="i")))
    rig.do(Pause("lunch"))
    changes = rig.machine.changes()
    assert changes.graph == GraphRow("g1", "lunch")
    assert [(row.slice.id, row.state) for row in changes.slices] == [("x", MERGED), ("y", RUNNING)]
    assert [(row.slice_id, row.attempt, row.outcome) for row in changes.attempts] == [("x", 1, "merged"), ("y", 1, "")]
    assert [(row.intent.id, row.attached) for row in changes.intents] == [("j", ("y",))]
    assert changes.forgotten == ("i",)
    assert rig.machine.unwritten() == ("x", "y")
    rig.settle()
    assert not rig.machine.changes()
    assert not rig.machine.changed


def test_effects_are_taken_once_and_in_order() -> None:
    rig = Rig(work("x"))
    rig.machine.handle(Route(Intent("i", "s", "x"), "go on"), rig.now, 2)
    rig.machine.handle(Enqueue((work("y"),)), rig.now, 2)
    rig.machine.handle(Cancel("x"), rig.now, 2)
    send, launch, ask = rig.machine.take_effects()
    assert (send, ask) == (Send("x@1", "go on"), AskToStop("x@1"))
    assert isinstance(launch, Launch)
    assert rig.machine.take_effects() == []


def test_an_assignment_says_all_that_a_host_needs() -> None:
    recipe = Recipe(command=("agent",), prompt="Build it.")
    (launch,) = Rig().enqueue(Slice("x", "The thing", recipe))
    assert isinstance(launch, Launch)
    assignment = launch.assignment
    assert (assignment.assignment_id, assignment.slice_id, assignment.attempt) == ("x@1", "x", 1)
    assert (assignment.recipe, assignment.title, assignment.task) == (recipe, "The thing", "The thing\n\nBuild it.")
    assert (assignment.checkpoint, assignment.branch, assignment.graph_id) == ("", "dispatch/x/1", "g1")


def test_later_attempts_have_branches_of_their_own() -> None:
    rig = Rig(work("x"))
    (launch,) = rig.report("x", SessionPhase.CLOSED)
    assert isinstance(launch, Launch)
    assert launch.assignment.branch == "dispatch/x/2"


def test_a_missing_title_becomes_the_id() -> None:
    rig = Rig(Slice("x"))
    assert rig.machine.graph.node("x").slice.title == "x"


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "x" * 70_000])
def test_what_agents_say_is_kept_as_far_as_a_store_can(text: str) -> None:
    rig = in_state(QUEUED)
    rig.report("other", SessionPhase.FAILED, error=text, detail=text, checkpoint=text, branch=text)
    row = {row.slice.id: row for row in rig.machine.changes().slices}["other"]
    assert {row.error, row.checkpoint} == {text[:65_536].replace("\0", "\ufffd").replace("\ud800", "\ufffd")}


def test_what_operators_say_is_kept_as_far_as_a_store_can() -> None:
    rig, text = in_state(QUEUED), "x" * 70_000
    rig.do(Hold("x", text))
    rig.do(Pause(text))
    rig.do(MarkMerged("x", text))
    row = {row.slice.id: row for row in rig.machine.changes().slices}["x"]
    assert {rig.machine.paused, row.hold, row.pull_request_url} == {text[:65_536]}


@pytest.mark.parametrize(
    ("field", "command"),
    [
        ("reason", lambda text: Hold("x", text)),
        ("reason", lambda text: Release("x", text)),
        ("reason", Pause),
        ("reason", Resume),
        ("pull_request_url", lambda text: MarkMerged("x", text)),
        ("message", lambda text: Route(Intent("i", "do it"), text)),
    ],
)
@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_what_no_store_can_hold_is_refused_by_field(field: str, command: Callable[[str], object], text: str) -> None:
    with pytest.raises(InvalidTextError) as refused:
        command(text)
    assert refused.value.field == field


# --- coming back --------------------------------------------------------------------------------------------------


def restored(rig: Rig, alive: tuple[str, ...] = ()) -> Rig:
    """What is made of everything `rig` has changed since it began, five seconds later."""
    changes = rig.machine.changes()
    again = Rig(graph_id="another")
    again.now = rig.now + 5
    contents = Contents(changes.graph, changes.slices, changes.attempts, changes.intents)
    again.machine.restore(contents, alive, again.now)
    again.machine.graph.check()
    return again


def test_what_held_a_session_goes_back_to_the_queue() -> None:
    rig = Rig(work("x"), work("y"), work("z"), cap=3)
    rig.report("y", SessionPhase.CLOSED, checkpoint="half done")
    rig.do(Cancel("z"))
    again = restored(rig)
    nodes = again.machine.graph.nodes
    assert again.states() == {"x": "queued", "y": "queued", "z": "canceled"}
    assert [nodes[name].checkpoint for name in "xyz"] == [CUT_OFF, "half done", CUT_OFF]
    assert [(nodes[name].closes, nodes[name].attempt) for name in "xyz"] == [(0, 1), (1, 2), (0, 1)]
    assert [row.outcome for row in again.machine.changes().attempts] == ["lost"] * 3
    assert again.machine.graph_id == "g1"
    assert again.machine.take_effects() == []


def test_nothing_is_learned_from_an_attempt_that_was_lost() -> None:
    """When it ended nobody knows: the harness may have been down for days."""
    rig = Rig(work("x"))
    again = restored(rig)
    assert again.machine.graph.node("x").ran_s == 0


def test_sessions_that_live_on_are_taken_up_and_asked_again_to_stop_if_they_were() -> None:
    rig = Rig(work("x"), work("y"), work("z"), cap=3)
    rig.do(Cancel("y"))
    rig.open(2)
    rig.enqueue(work("now", contends=("z",)))
    rig.urgent("now")
    assert rig.states() == {"x": "running", "y": "running", "z": "preempted", "now": "queued"}
    again = restored(rig, ("x@1", "y@1", "z@1"))
    assert again.states() == rig.states()
    assert again.machine.take_effects() == [AskToStop("y@1"), AskToStop("z@1")]
    again.report("y", SessionPhase.CANCELED)
    assert again.state("y") is CANCELED


def test_room_is_empty_after_a_start() -> None:
    rig = Rig(work("x"), work("now"))
    rig.urgent("now")
    assert [node.id for node in rig.machine.graph.room] == ["now"]
    assert not restored(rig).machine.graph.room


def test_a_suspended_machine_starts_nothing_and_takes_everything() -> None:
    rig = Rig()
    rig.machine.suspended = True
    assert rig.enqueue(work("x")) == []
    assert rig.state("x") is QUEUED
    rig.machine.suspended = False
    rig.machine.run_pass()
    assert [effect.assignment_id for effect in rig.machine.take_effects()] == ["x@1"]


def test_urgency_is_the_strongest_of_the_intents_attached() -> None:
    rig = Rig(work("x"), work("a"), work("b"), work("c"))
    rig.do(DeclareIntent(Intent("low", "s", "b", Urgency.LOW)))
    assert [node.id for node in rig.machine.graph.frontier()] == ["b", "a", "c"]
    rig.do(DeclareIntent(Intent("high", "s", "c", Urgency.HIGH)))
    rig.do(DeclareIntent(Intent("low-too", "s", "c", Urgency.LOW)))
    assert [node.id for node in rig.machine.graph.frontier()] == ["c", "b", "a"]
    rig.do(DeclareIntent(Intent("high", "s", "a", Urgency.HIGH)))
    assert [node.id for node in rig.machine.graph.frontier()] == ["a", "b", "c"]
