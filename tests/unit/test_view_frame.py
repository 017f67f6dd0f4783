from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from rich.cells import cell_len

from dispatch.commands import Pause
from dispatch.offline import states
from dispatch.slice import Slice, SliceState
from dispatch.view.events import Event
from dispatch.view.frame import Scene, frame, progress, share
from dispatch.views import Cap, StoreStatus
from harness import SessionPhase
from harness.local import RunningSession
from tests.unit.graph_rig import BEGAN_AT, Graph, printed


def session(slice_id: str, **fields: object) -> RunningSession:
    given = {
        "assignment_id": f"{slice_id}@1",
        "slice_id": slice_id,
        "title": slice_id,
        "branch": "b",
        "stage": "running",
        "turn": 1,
        "started_at": BEGAN_AT,
        "last_line": "",
        "log": Path("log"),
        "pid": 1,
    }
    return RunningSession(**(given | fields))  # type: ignore[arg-type]


def scene(
    graph: Graph,
    sessions: Sequence[RunningSession] = (),
    waits: dict[str, str] | None = None,
    events: Sequence[Event] = (),
    notice: str = "",
) -> Scene:
    snapshot = graph.snapshot()
    return Scene(snapshot, states(snapshot.slices), sessions, waits or {}, events, BEGAN_AT, BEGAN_AT + 12, notice)


def busy() -> Scene:
    """A graph with something in every part of the view."""
    graph = Graph(
        Slice("parser"),
        Slice("lexer", title="[red]not markup[/red]"),
        Slice("docs"),
        Slice("site", depends_on=("docs",)),
        Slice("broken"),
    )
    graph.report("docs", SessionPhase.FAILED, error="no")
    sessions = [
        session("parser", last_line="\x1b[31mcompiling\x1b[0m \x9b2J", turn=2),
        session("lexer", assignment_id="lexer@3", stage="verifying", started_at=BEGAN_AT + 10),
    ]
    events = [
        Event(BEGAN_AT, "started", "parser"),
        Event(BEGAN_AT + 3, "failed", "docs", "[b]no[/b]\nreally"),
    ]
    return scene(graph, sessions, {"broken": "all places are taken: 2 run"}, events)


def test_a_frame_shows_the_graph_its_sessions_its_frontier_and_what_happened() -> None:
    assert printed(frame(busy(), 80, 24), 80) == [
        "dispatch demo  by rank  12s",
        "cap 2, set by hand",
        "▒▒▒▒▒▒▒▒▒▒xxxxxx░░░░░░░░░░ 0/5 merged  2 queued  2 running  1 failed",
        "running 2",
        "  parser                  12s running turn 2  compiling �2J",
        "  lexer                  2.0s verifying attempt 3  ",
        "frontier 1",
        "   1 broken               all places are taken: 2 run",
        "recent",
        "    0.0s  started    parser  ",
        "    3.0s  failed     docs  [b]no[/b] really",
    ]


def test_a_store_out_of_reach_a_pause_and_a_notice_are_said() -> None:
    graph = Graph(Slice("a"))
    graph.do(Pause("lunch"))
    graph.store = StoreStatus("x", False, BEGAN_AT + 5, "disk full", ("a", "b"))
    lines = printed(frame(scene(graph, notice="stopping"), 80, 24), 80)
    assert lines[2:5] == ["store out of reach for 7.0s, 2 changes to write: disk full", "paused: lunch", "stopping"]


@pytest.mark.parametrize("width", [40, 41, 60, 79, 120, 200])
@pytest.mark.parametrize("height", [1, 3, 5, 10, 11, 30, 60])
def test_a_frame_is_never_larger_than_its_terminal(width: int, height: int) -> None:
    graph = Graph(*(Slice(f"slice-{'x' * (n % 60)}-{n}", title="日本語" * 20) for n in range(300)), cap=20)
    running = [session(f"slice-{n}" * 9, last_line="日本語の長い行" * 30) for n in range(20)]
    events = [Event(BEGAN_AT, "merged", f"slice-{n}" * 9, "why " * 90) for n in range(99)]
    waits = dict.fromkeys(graph.snapshot().frontier, "because " * 50)
    lines = printed(frame(scene(graph, running, waits, events), width, height), width)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    assert height < 10 or len(lines) == height


def test_lists_are_cut_to_their_share_and_titled_with_how_many_there_are() -> None:
    graph = Graph(*(Slice(f"s{n}") for n in range(50)), cap=10)
    running = [session(f"s{n}") for n in range(10)]
    events = [Event(BEGAN_AT + n, "merged", f"e{n}") for n in range(40)]
    lines = printed(frame(scene(graph, running, {}, events), 80, 18), 80)
    assert lines[3:] == [
        "running 10",
        *(f"  s{n}                      12s running  " for n in range(4)),
        "frontier 40",
        *(f"   {rank} s{rank + 9}                  " for rank in (1, 2, 3, 4)),
        "recent",
        *(f"     {n}s  merged     e{n}  " for n in (36, 37, 38, 39)),
    ]


@pytest.mark.parametrize(
    ("lines", "sizes", "shares"),
    [
        (0, (5, 5, 5), [0, 0, 0]),
        (100, (5, 0, 2), [6, 0, 3]),
        (9, (9, 9, 9), [3, 3, 3]),
        (10, (9, 9, 9), [4, 3, 3]),
        (10, (1, 9, 9), [2, 4, 4]),
        (2, (9, 9, 9), [0, 0, 0]),
        (3, (9, 0, 0), [3, 0, 0]),
    ],
)
def test_lines_are_shared_by_need(lines: int, sizes: tuple[int, ...], shares: list[int]) -> None:
    assert share(lines, sizes) == shares


@pytest.mark.parametrize("total", [1, 3, 7, 40, 41, 1000])
def test_the_bar_is_always_full(total: int) -> None:
    counts = {SliceState.MERGED: total // 3, SliceState.RUNNING: total // 5}
    counts[SliceState.QUEUED] = total - sum(counts.values())
    bar = progress(counts, 300).plain.split(" ")[0]
    assert len(bar) == 40


def test_no_slices_make_an_empty_bar() -> None:
    assert progress({}, 80).plain == " 0/0 merged"


def test_fifty_thousand_slices_make_a_frame_like_any_other() -> None:
    few = busy()
    frontier = tuple(f"s{n}" for n in range(50_000))
    counts = {SliceState.QUEUED: 50_000}
    many = attrs.evolve(few, snapshot=attrs.evolve(few.snapshot, frontier=frontier), counts=counts)
    lines = printed(frame(many, 100, 30), 100)
    assert len(lines) == 30
    assert "frontier 50,000" in lines
    assert lines[2].endswith(" 0/50,000 merged  50,000 queued")


@pytest.mark.parametrize(("width", "height"), [(12, 30), (12, 3), (80, 4), (1, 1), (19, 5)])
def test_a_tiny_terminal_gets_one_line(width: int, height: int) -> None:
    graph = Graph(*(Slice(f"slice-{n}") for n in range(300)))
    (line,) = printed(frame(scene(graph), width, height), width)
    assert "0/300 merged".startswith(line.rstrip("…"))
    assert cell_len(line) <= width


def test_the_frame_names_what_decides_the_cap_alone() -> None:
    shown = scene(Graph(Slice("a")))
    cap = Cap(3, "cap 5, set by hand; memory allows 3; disk allows 9", "memory allows 3")
    shown = attrs.evolve(shown, snapshot=attrs.evolve(shown.snapshot, cap=cap))
    assert printed(frame(shown, 80, 24), 80)[1] == "memory allows 3"
