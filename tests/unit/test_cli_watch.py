"""The loop of a run, with a clock that is moved by hand: what it costs, and when it ends."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from dispatch.cli.watch import HURRYING, NAP_S, REVIEWS_S, SHARE, STOPPING, Notices, Outcome, Watch
from dispatch.commands import Enqueue, MarkMerged
from dispatch.errors import NotRunningError, StoreUnavailableError
from dispatch.slice import Slice, SliceState
from dispatch.view.events import Event
from dispatch.view.frame import Scene
from dispatch.views import Explanation, SliceView, Snapshot
from harness import SessionPhase
from tests.unit.graph_rig import BEGAN_AT, Graph


class Stage:
    """Service, host, screen and signals of a run, and its clock. `script` maps a time to what happens then."""

    rows = 24

    def __init__(self, graph: Graph, script: dict[float, Any] | None = None, look_s: float = 0.0) -> None:
        self.graph, self.script, self.look_s = graph, dict(script or {}), look_s
        self.now, self.changes, self.busy = 0.0, 1, True
        self.looks: list[float] = []
        self.scenes: list[tuple[float, Scene, list[Event]]] = []
        self.closes: list[float] = []
        self.count, self.broken, self.noted = 0, False, list[int]()
        self.asked: list[float] = []
        self.heeds: list[float] = [0.0]
        self.on_main: set[str] = set()
        self.unavailable = 0  # how many times a merge can't be noted
        self.notices = Notices()

    def watched(self, *, wait: bool = False) -> Outcome:
        before = self.graph.snapshot()
        watch = Watch(self, self, self, self, self.notices, self, before, BEGAN_AT, clock=lambda: self.now)  # type: ignore[arg-type]
        return watch.until_over(wait=wait, patience_s=5.0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for at in sorted(at for at in self.script if at <= self.now):
            self.script.pop(at)()
        assert self.now < 10_000, "the run never ends"

    # the service
    def wait_for_change(self, since: int, timeout: float) -> int:
        if self.changes <= since:
            self.pass_time(timeout)
        return self.changes

    def snapshot(self) -> Snapshot:
        self.looks.append(self.now)
        self.now += self.look_s
        return self.graph.snapshot()

    def mark_merged(self, slice_id: str) -> None:
        if self.unavailable:
            self.unavailable -= 1
            raise StoreUnavailableError("out of reach")
        merge_by_hand(self.graph, slice_id)
        self.changes += 1

    def explain(self, slice_id: str) -> Explanation:
        return Explanation(self.graph.snapshot().slices[0], ())

    # the host
    def running(self) -> tuple[Any, ...]:
        return (None,) if self.busy else ()

    def close(self, timeout: float = 30.0) -> bool:
        self.closes.append(timeout)
        return True

    # the reviews
    def merged(self, views: Iterable[SliceView]) -> list[str]:
        self.asked.append(self.now)
        return [view.id for view in views if view.id in self.on_main and view.state is SliceState.IN_REVIEW]

    # the signals
    def note(self, number: int) -> None:
        self.count += 1
        self.noted.append(number)

    def rest(self, seconds: float) -> None:
        self.pass_time(max(0.001, seconds))

    # the screen
    def show(self, scene: Scene, news: Iterable[Event]) -> None:
        self.scenes.append((self.now, scene, list(news)))

    def heed(self) -> None:
        self.heeds.append(self.now)

    def changed(self, step: Any) -> Any:
        def happen() -> None:
            step()
            self.changes += 1

        return happen


def one_slice() -> tuple[Graph, Any]:
    graph = Graph(Slice("a"), cap=1)
    return graph, lambda: graph.report("a", SessionPhase.MERGED)


def test_a_run_ends_when_nothing_can_happen_any_more() -> None:
    graph, merge = one_slice()
    stage = Stage(graph)
    stage.script = {7.0: stage.changed(merge)}
    outcome = stage.watched()
    assert outcome.snapshot.slices[0].state is SliceState.MERGED
    assert outcome.standing.over
    assert 7 <= stage.now < 8
    told = [event.what for _, _, news in stage.scenes for event in news]
    assert told == ["merged"]
    assert stage.closes == []
    assert max(later - earlier for earlier, later in pairwise(stage.heeds)) <= NAP_S


def test_the_clock_on_the_screen_moves_once_a_second_and_nothing_is_looked_at_meanwhile() -> None:
    graph, merge = one_slice()
    stage = Stage(graph)
    stage.script = {60.0: stage.changed(merge)}
    stage.watched()
    assert len(stage.looks) == 3  # the first, the merge, and the last
    assert 58 <= len(stage.scenes) <= 64


@pytest.mark.parametrize(("look_s", "most"), [(0.001, 8.1), (0.1, 0.21), (1.0, 0.021)])
def test_a_graph_that_never_rests_is_looked_at_for_a_fiftieth_of_the_time(look_s: float, most: float) -> None:
    graph, merge = one_slice()
    stage = Stage(graph, look_s=look_s)

    def stir() -> None:
        stage.changes += 1
        if stage.now < 500:
            stage.script[stage.now + 0.01] = stir
        else:
            merge()

    stage.script = {0.0: stir}
    stage.watched()
    assert (len(stage.looks) - 2) / stage.now <= most  # less the first and the last
    assert len(stage.looks) > 2
    assert SHARE == 50


def test_the_end_is_seen_at_once_however_dear_a_look_is() -> None:
    graph, merge = one_slice()
    stage = Stage(graph, look_s=2.0)

    def end() -> None:
        merge()
        stage.busy = False

    stage.script = {10.0: stage.changed(end)}
    stage.watched()
    assert stage.now < 16


def test_a_store_or_owner_that_is_gone_ends_the_run_with_its_error() -> None:
    graph, _ = one_slice()
    stage = Stage(graph)

    def gone() -> None:
        def snapshot() -> Snapshot:
            raise NotRunningError("taken over")

        stage.snapshot = snapshot  # type: ignore[method-assign]

    stage.script = {3.0: stage.changed(gone)}
    with pytest.raises(NotRunningError, match="taken over"):
        stage.watched()


def test_waiting_stays_until_all_slices_are_finished() -> None:
    graph = Graph(Slice("a"), cap=1)
    stage = Stage(graph)
    stage.script = {
        1.0: stage.changed(lambda: graph.report("a", SessionPhase.CLOSED, pull_request_url="https://x/1")),
        50.0: stage.changed(lambda: graph.do(Enqueue((Slice("b", depends_on=("a",)),)))),
        99.0: stage.changed(lambda: merge_by_hand(graph, "a", "b")),
    }
    outcome = stage.watched(wait=True)
    assert [view.state for view in outcome.snapshot.slices] == [SliceState.MERGED] * 2
    assert stage.now >= 99


def merge_by_hand(graph: Graph, *slice_ids: str) -> None:
    for name in slice_ids:
        graph.do(MarkMerged(name, ""))


def in_review(graph: Graph, slice_id: str) -> None:
    graph.report(slice_id, SessionPhase.CLOSED, pull_request_url="https://x/1")


def test_while_it_waits_a_review_that_was_merged_is_found_and_its_dependent_starts() -> None:
    graph = Graph(Slice("a"), Slice("b", depends_on=("a",)), cap=1)
    in_review(graph, "a")
    stage = Stage(graph)
    stage.script = {
        30.0: lambda: stage.on_main.add("a"),
        60.0: stage.changed(lambda: graph.report("b", SessionPhase.MERGED)),
    }
    outcome = stage.watched(wait=True)
    assert [view.state for view in outcome.snapshot.slices] == [SliceState.MERGED] * 2
    told = {event.slice_id: event.what for _, _, news in stage.scenes for event in news}
    assert told == {"a": "merged", "b": "merged"}
    pauses = [after - before for before, after in itertools.pairwise(stage.asked)]
    assert min(pauses) >= REVIEWS_S
    assert max(pauses) < REVIEWS_S + 1


def test_at_its_start_a_run_finds_the_reviews_that_were_merged_before() -> None:
    graph = Graph(Slice("a"), cap=1)
    in_review(graph, "a")
    stage = Stage(graph)
    stage.on_main = {"a"}
    assert stage.watched().snapshot.slices[0].state is SliceState.MERGED
    assert stage.now < 1


def test_a_merge_that_cannot_be_noted_is_noted_later() -> None:
    graph = Graph(Slice("a"), cap=1)
    in_review(graph, "a")
    stage = Stage(graph)
    stage.on_main, stage.unavailable = {"a"}, 2
    assert stage.watched(wait=True).snapshot.slices[0].state is SliceState.MERGED
    assert 2 * REVIEWS_S <= stage.now < 4 * REVIEWS_S


def test_without_waiting_a_review_ends_the_run() -> None:
    graph = Graph(Slice("a"), cap=1)
    stage = Stage(graph)
    report = stage.changed(lambda: graph.report("a", SessionPhase.CLOSED, pull_request_url="https://x/1"))
    stage.script = {1.0: report}
    assert stage.watched().snapshot.slices[0].state is SliceState.IN_REVIEW
    assert stage.now < 3


def test_a_first_signal_closes_the_host_with_patience_and_a_second_without() -> None:
    graph, _ = one_slice()
    stage = Stage(graph)
    stage.script = {2.0: lambda: stage.note(2)}
    stage.watched()
    assert stage.closes == [5.0]
    assert STOPPING in {scene.notice for _, scene, _ in stage.scenes}

    stage = Stage(graph)
    stage.script = {2.0: lambda: [stage.note(2), stage.note(15)]}
    stage.watched()
    assert sorted(stage.closes) == [0.0, 5.0]
    assert stage.scenes[-1][1].notice == HURRYING


def test_a_screen_that_breaks_counts_as_a_signal() -> None:
    graph, _ = one_slice()
    stage = Stage(graph)
    stage.broken = True
    stage.watched()
    assert stage.noted == [13]
    assert stage.closes == [5.0]


def test_what_is_logged_is_shown_among_the_events() -> None:
    graph, merge = one_slice()
    stage = Stage(graph)
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "the %s is full", ("disk",), None)
    stage.script = {1.0: lambda: stage.notices.handle(record), 5.0: stage.changed(merge)}
    stage.watched()
    told = [(event.what, event.detail) for _, _, news in stage.scenes for event in news]
    assert told == [("warning", "the disk is full"), ("merged", "")]
