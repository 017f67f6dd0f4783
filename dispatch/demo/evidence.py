"""What a finished demo left: main's history, the agents' own words, the files, and the attempts that were stored.

Order and outcome are told by git and by the agents' logs, not by the scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from dispatch.cli.places import store_at
from dispatch.demo.playground import Playground
from dispatch.plans import read_plan
from dispatch.slice import Slice
from dispatch.store import AttemptRow

GRAPH = "demo"
_MERGES = "--format=%(trailers:key=Dispatch-Slice,valueonly,separator=)%x00%H%x00%P"
_TIMES = re.compile(r"^(begins|ends) at ([0-9.]+)$", re.MULTILINE)


@attrs.frozen
class Merge:
    """A merge on main: of which slice, its commit, and the work that was merged."""

    slice_id: str
    commit: str
    work: str


@attrs.frozen
class Span:
    """From when to when an agent ran, in Unix seconds by its own clock. `end` is infinite if it never said."""

    slice_id: str
    attempt: int
    begin: float
    end: float

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


@attrs.frozen
class Evidence:
    """`merges` are main's, the first one first; `files` the text of every file on main by its path; `logs` by slice
    and attempt."""

    cap: int
    slices: Mapping[str, Slice]
    merges: tuple[Merge, ...]
    spans: tuple[Span, ...]
    attempts: Mapping[str, tuple[AttemptRow, ...]]
    files: Mapping[str, str]
    logs: Mapping[tuple[str, int], str]
    began_with: frozenset[tuple[str, str]]

    @property
    def order(self) -> list[str]:
        """The slices in the order of their merges."""
        return [merge.slice_id for merge in self.merges]


def gather(place: Playground) -> Evidence:
    """Read it all."""
    plan = read_plan(place.plan)
    slices = {each.id: each for each in plan.slices}
    stored = store_at(place.store).peek(GRAPH)[0]
    graph_id = stored.graph.graph_id if stored.graph else ""
    attempts = {name: tuple(row for row in stored.attempts if row.slice_id == name) for name in slices}
    logs = {(row.slice_id, row.attempt): _read(place, graph_id, row) for row in stored.attempts}
    merges = tuple(_merges(place))
    return Evidence(
        cap=plan.cap or 0,
        slices=slices,
        merges=merges,
        spans=tuple(span for (name, attempt), text in logs.items() for span in _spans(name, attempt, text)),
        attempts=attempts,
        files={
            path: place.git("show", f"main:{path}")
            for path in place.git("ls-tree", "-r", "--name-only", "main").split()
        },
        logs=logs,
        began_with=frozenset(_began_with(place, slices, merges)),
    )


def _read(place: Playground, graph_id: str, row: AttemptRow) -> str:
    path = place.log(graph_id, row.slice_id, row.attempt)
    return path.read_text("utf-8") if path.exists() else ""


def _merges(place: Playground) -> Iterator[Merge]:
    for line in place.git("log", "--reverse", "--first-parent", "--merges", _MERGES, "main").splitlines():
        slice_id, commit, parents = line.split("\0")
        yield Merge(slice_id, commit, parents.split()[1])


def _spans(slice_id: str, attempt: int, text: str) -> Iterator[Span]:
    times = {word: float(seconds) for word, seconds in _TIMES.findall(text)}
    if "begins" in times:
        yield Span(slice_id, attempt, times["begins"], times.get("ends", float("inf")))


def _began_with(place: Playground, slices: Mapping[str, Slice], merges: tuple[Merge, ...]) -> Iterator[tuple[str, str]]:
    """The pairs of a slice and one it depends on whose merge is in the history of the slice's work."""
    commits = {merge.slice_id: merge.commit for merge in merges}
    for merge in merges:
        past = place.git("rev-list", merge.work).split()
        yield from ((merge.slice_id, name) for name in slices[merge.slice_id].depends_on if commits.get(name) in past)
