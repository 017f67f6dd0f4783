from __future__ import annotations

import json

import attrs
import pytest

from dispatch.commands import MarkMerged
from dispatch.slice import Slice, SliceState
from dispatch.store.port import AttemptRow
from dispatch.view.gantt import ASCII
from dispatch.view.standing import standing
from dispatch.view.summary import (
    Ending,
    Prediction,
    Summary,
    ending_of,
    peak_of,
    summary_document,
    summary_lines,
)
from dispatch.views import Cap
from harness import Recipe, SessionPhase
from tests.unit.graph_rig import BEGAN_AT, Graph


def attempt(slice_id: str, number: int, start: float, end: float, outcome: str) -> AttemptRow:
    return AttemptRow(slice_id, number, "b", BEGAN_AT + start, BEGAN_AT + end if end else 0.0, outcome)


def ending(slice_id: str, outcome: str = "merged", **fields: object) -> Ending:
    given = {
        "title": slice_id,
        "reason": "",
        "attempts": 1,
        "ran_s": 2.0,
        "pull_request_url": "",
        "log": "",
        "intervals": ((0.0, 2.0),),
        "lost": (),
    }
    return Ending(id=slice_id, outcome=outcome, **(given | fields))  # type: ignore[arg-type]


def summary(*endings: Ending, interrupted: str = "", prediction: Prediction | None = None, others: int = 0) -> Summary:
    return Summary(
        "demo", "memory:", "demo.toml", endings, others, 12.0, 3, 2, Cap(2, "cap 2"), BEGAN_AT, interrupted, prediction
    )


def lines(told: Summary, width: int = 80) -> list[str]:
    return [text.plain.rstrip() for text in summary_lines(told, width, 50, ASCII)]


def test_what_became_of_a_slice_is_told_with_its_attempts_of_this_run() -> None:
    graph = Graph(Slice("a"), cap=1)
    graph.merge("a")
    snapshot = graph.snapshot()
    rows = [
        attempt("a", 1, -100, -90, "closed"),
        attempt("a", 2, 1, 3, "closed"),
        attempt("a", 3, 4, 10, "merged"),
    ]
    told = ending_of(snapshot.slices[0], rows, standing(snapshot), BEGAN_AT, BEGAN_AT + 12, "log")
    assert (told.outcome, told.intervals, told.lost, told.ran_s) == ("merged", ((4, 10),), ((1, 3),), 8)


def test_an_attempt_that_was_stopped_lasts_to_the_end_of_the_run() -> None:
    graph = Graph(Slice("a"))
    snapshot = graph.snapshot()
    rows = [attempt("a", 1, 1, 0, "")]
    told = ending_of(snapshot.slices[0], rows, standing(snapshot), BEGAN_AT, BEGAN_AT + 12, "")
    assert (told.outcome, told.lost) == ("stopped", ((1, 12),))


@pytest.mark.parametrize(("url", "ran", "lost"), [("https://x/1", ((3, 5),), ((0, 2),)), ("", (), ((0, 2), (3, 5)))])
def test_what_a_review_has_merged_was_not_lost(
    url: str, ran: tuple[tuple[float, float], ...], lost: tuple[tuple[float, float], ...]
) -> None:
    graph = Graph(Slice("a"))
    graph.report("a", SessionPhase.CLOSED)
    graph.report("a", SessionPhase.CLOSED, pull_request_url=url)
    graph.do(MarkMerged("a"))
    view = graph.snapshot().slices[0]
    rows = [attempt("a", 1, 0, 2, "closed"), attempt("a", view.attempt, 3, 5, "closed")]
    told = ending_of(view, rows, standing(graph.snapshot()), BEGAN_AT, BEGAN_AT + 9, "")
    assert (told.outcome, told.intervals, told.lost) == ("merged", ran, lost)


def outcome_of(graph: Graph, slice_id: str) -> tuple[str, str]:
    snapshot = graph.snapshot()
    view = next(view for view in snapshot.slices if view.id == slice_id)
    told = ending_of(view, (), standing(snapshot), BEGAN_AT, BEGAN_AT, "")
    return told.outcome, told.reason


def test_every_way_not_to_merge_has_its_word_and_its_reason() -> None:
    graph = Graph(
        Slice("fails"), Slice("behind", depends_on=("fails",)), Slice("held", hold="later"), Slice("waits"), cap=1
    )
    assert outcome_of(graph, "waits") == ("queued", "")
    graph.cap = 0
    graph.report("fails", SessionPhase.FAILED, error="exit 1")
    assert outcome_of(graph, "fails") == ("failed", "exit 1")
    assert outcome_of(graph, "behind") == ("stranded", "needs fails, which failed")
    assert outcome_of(graph, "held") == ("held", "held: later")
    graph.open(1)
    graph.report("waits", SessionPhase.CLOSED, pull_request_url="https://x/1")
    assert outcome_of(graph, "waits") == ("in review", "https://x/1")


def test_sessions_and_their_peak_are_of_this_run() -> None:
    rows = [
        attempt("old", 1, -50, -40, "merged"),
        attempt("a", 1, 0, 5, "merged"),
        attempt("b", 1, 1, 5, "closed"),
        attempt("b", 2, 5, 9, "merged"),
        attempt("c", 1, 5, 0, ""),
    ]
    assert peak_of(rows, BEGAN_AT, BEGAN_AT + 10) == (4, 2)
    assert peak_of([], BEGAN_AT, BEGAN_AT) == (0, 0)


def test_a_complete_run_reads_as_such() -> None:
    told = summary(ending("a"), ending("bb", ran_s=4.0, intervals=((2.0, 6.0),)))
    assert told.complete
    assert lines(told) == [
        "2 of 2 slices merged in 12s: 3 sessions, at most 2 at once",
        "  merged    a    2.0s",
        "  merged    bb   4.0s",
        "",
        "a  ################",
        "bb                ################################",
        "   0                      3.0s                6.0s",
        "# runs",
    ]


def test_what_did_not_merge_comes_first_with_its_reason_and_its_log() -> None:
    told = summary(
        ending("ok", attempts=2),
        ending("held", "held", reason="held: later", attempts=0, ran_s=0, intervals=()),
        ending("bad", "failed", reason="exit 1: \x1b[31m[b]no[/b]", log="/x/bad/1.log", intervals=(), lost=((0, 2),)),
        others=3,
        prediction=Prediction({"ok": (0.0, 3.0)}, 2, 3.0),
    )
    assert not told.complete
    assert lines(told) == [
        "1 of 3 slices merged in 12s: 3 sessions, at most 2 at once",
        "  failed    bad    2.0s            exit 1: [b]no[/b]",
        "            log: /x/bad/1.log",
        "  held      held                   held: later",
        "  merged    ok     2.0s 2 attempts",
        "  and 3 slices of the graph that the plan doesn't name",
        "",
        "ok  ###############################...............",
        "bad xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "    0                      1.5s               3.0s",
        "# ran as predicted   = ran   . predicted   x an attempt that did not merge",
        "predicted 3.0s: simulated at the start for cap 2, scaled to what merged slices",
        "took on the average",
        "see `log bad`; mend the plan, or let `retry bad` queue it again, and `run` goes",
        "on",
        "`release held` lets it start, and `run` goes on",
    ]


def test_a_reason_that_is_too_long_for_its_line_goes_on_below() -> None:
    reason = "command not found: 'claudee'; it is looked for on PATH: install it, or name it by its full path"
    told = lines(summary(ending("a", "failed", reason=reason, log="/x/1.log", intervals=(), lost=((0, 2),))))
    assert told[1:4] == [
        "  failed    a   2.0s  command not found: 'claudee'; it is looked for on PATH:",
        "            install it, or name it by its full path",
        "            log: /x/1.log",
    ]


def test_an_interrupted_run_says_how_to_go_on() -> None:
    told = summary(ending("a", "stopped", intervals=(), lost=((0, 2),)), interrupted="SIGINT")
    assert lines(told)[-1] == "stopped; the same `run` goes on from here"
    assert lines(attrs.evolve(told, repeatable=False)) == lines(told)[:-1]


def test_a_review_is_told_with_what_ends_it() -> None:
    told = summary(ending("first", "in review", reason="https://x/1", intervals=(), lost=((0, 2),)))
    assert " ".join(lines(told)[-2:]) == (
        "once main has its branch, `run` goes on (`run --wait` waits for it); `merged first` says so by hand"
    )


def test_for_an_attempt_that_was_lost_no_end_is_made_up() -> None:
    graph = Graph(Slice("a"))
    rows = [attempt("a", 1, 1, 0, "lost"), attempt("a", 2, 4, 6, "merged")]
    assert rows[0].ended_at == 0
    told = ending_of(graph.snapshot().slices[0], rows, standing(graph.snapshot()), BEGAN_AT, BEGAN_AT + 9, "")
    assert (told.lost, told.intervals, told.ran_s) == ((), ((4.0, 6.0),), 2.0)
    assert peak_of(rows, BEGAN_AT, BEGAN_AT + 9) == (2, 1)


def test_a_stopped_slice_promises_no_more_than_there_is() -> None:
    graph = Graph(Slice("a"))
    assert outcome_of(graph, "a") == ("stopped", "the next run starts it again, from the work that it left, if any")


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_no_line_is_wider_than_its_width_but_a_path(width: int) -> None:
    endings = [ending(f"s{n}-{'x' * n}", reason="日本語" * 60) for n in range(100)]
    for text in summary_lines(summary(*endings, prediction=Prediction({}, 1, 1.0)), width, width):
        assert text.cell_len <= width, text.plain


def test_many_slices_are_counted_rather_than_listed() -> None:
    told = lines(summary(*(ending(f"s{n}") for n in range(500))))
    assert "  and 440 more" in told
    assert len(told) < 140


def test_the_document_is_json_and_complete() -> None:
    told = summary(
        ending("a", intervals=((0.0, 2.00049),)),
        ending("b", "failed", reason="no", log="/x", lost=((1.0, 2.0),), intervals=()),
        interrupted="SIGTERM",
        prediction=Prediction({"a": (0.0, 1.5)}, 2, 3.0),
    )
    document = json.loads(json.dumps(summary_document(told)))
    assert document["slices"].pop(0) == {
        "id": "a",
        "title": "a",
        "outcome": "merged",
        "reason": "",
        "attempts": 1,
        "ran_s": 2.0,
        "pull_request_url": None,
        "log": None,
        "ran": [[0.0, 2.0]],
        "lost": [],
        "predicted": [0.0, 1.5],
    }
    assert [each["id"] for each in document.pop("slices")] == ["b"]
    assert document == {
        "graph": "demo",
        "store": "memory:",
        "plan": "demo.toml",
        "complete": False,
        "interrupted": "SIGTERM",
        "began_at": "1970-01-12T13:46:40Z",
        "wall_s": 12.0,
        "sessions": 3,
        "peak": 2,
        "cap": {"places": 2, "derivation": "cap 2"},
        "predicted": {"makespan_s": 3.0, "cap": 2},
        "others": 0,
    }


def test_every_state_has_a_place_in_the_order() -> None:
    for state in SliceState:
        if state not in (SliceState.RUNNING, SliceState.PREEMPTED):
            assert lines(summary(ending("a", state.value.replace("_", " "))))


def test_advised_commands_reach_the_graph_and_stay_in_one_piece_however_narrow_the_terminal() -> None:
    told = attrs.evolve(summary(ending("bad", "failed")), reach=" --graph 'a b'")
    assert lines(told, 30)[-1] == (
        "see `log bad --graph 'a b'`; mend the plan, or let `retry bad --graph 'a b'` queue it again, and `run` goes on"
    )


def test_a_graph_that_no_command_reaches_gets_no_advice() -> None:
    told = lines(attrs.evolve(summary(ending("bad", "failed")), reach=None))
    assert not any("retry" in text for text in told)


def test_max_attempts_are_told_by_the_reason() -> None:
    graph = Graph(Slice("a", recipe=Recipe(max_attempts=1)))
    graph.report("a", SessionPhase.CLOSED, detail="verify failed")
    assert outcome_of(graph, "a") == ("failed", "verify failed")
