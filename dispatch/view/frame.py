"""The live view: one frame of it, from a scene, for a terminal of a given size.

What doesn't fit is left out before anything is laid out, so that a frame costs the same with five slices as with
fifty thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
from rich.console import Group
from rich.text import Text

from dispatch.slice import SliceState
from dispatch.view.events import Event
from dispatch.view.text import clean, count, elapsed, fit, line
from dispatch.views import Snapshot

if TYPE_CHECKING:
    from harness.local import RunningSession

STATE_STYLES = {
    SliceState.MERGED: "green",
    SliceState.RUNNING: "cyan",
    SliceState.PREEMPTED: "magenta",
    SliceState.IN_REVIEW: "blue",
    SliceState.QUEUED: "",
    SliceState.FAILED: "red",
    SliceState.CANCELED: "dim",
}
EVENT_STYLES = {
    "merged": "green",
    "failed": "red",
    "closed": "yellow",
    "preempted": "magenta",
    "store": "red",
    "warning": "yellow",
}
BAR_MARKS = {
    SliceState.MERGED: "█",
    SliceState.IN_REVIEW: "▓",
    SliceState.RUNNING: "▒",
    SliceState.PREEMPTED: "▒",
    SliceState.FAILED: "x",
    SliceState.CANCELED: "-",
    SliceState.QUEUED: "░",
}
BAR_CELLS = 40
NARROWEST, LOWEST = 20, 5  #: the cells and lines of a terminal below which one line is shown
_EVENT_WORD = 9  # the longest of them


@attrs.frozen
class Scene:
    """What is to be seen. `counts` are the slices by state; `waits` says of slices at the head of the frontier why they
    wait; `events` are the latest, oldest first; `notice` is said in a line of its own. Times are Unix seconds."""

    snapshot: Snapshot
    counts: Mapping[SliceState, int]
    sessions: Sequence[RunningSession]
    waits: Mapping[str, str]
    events: Sequence[Event]
    began_at: float
    now: float
    notice: str = ""


def frame(scene: Scene, width: int, height: int) -> Group:
    """At most `height` lines of at most `width` cells; a single one where there is no room for more to make sense."""
    if width < NARROWEST or height < LOWEST:
        return Group(line(*_merged(scene.counts), cells=width))
    top = list(_head(scene, width))[:height]
    left = height - len(top)
    sizes = (len(scene.sessions), len(scene.snapshot.frontier), len(scene.events))
    sessions, frontier, events = share(left, sizes)
    lines = [
        *top,
        *_section(f"running {len(scene.sessions)}", sessions, _sessions(scene, sessions - 1, width), width),
        *_section(f"frontier {len(scene.snapshot.frontier):,}", frontier, _frontier(scene, frontier - 1, width), width),
        *_section("recent", events, _events(scene, events - 1, width), width),
    ]
    return Group(*lines[:height])


def share(lines: int, sizes: Sequence[int]) -> list[int]:
    """How many of `lines` each section gets, its title included, of those that have `sizes` entries.

    A section without entries gets none, and none gets more than it needs; what is left is shared evenly, the first
    ones first. A section that would get its title alone gets nothing.
    """
    wanted = [size + 1 if size else 0 for size in sizes]
    given = [0] * len(sizes)
    while lines > 0 and given != wanted:
        for at, most in enumerate(wanted):
            if lines > 0 and given[at] < most:
                given[at] += 1
                lines -= 1
    return [number if number > 1 else 0 for number in given]


def _head(scene: Scene, width: int) -> Iterator[Text]:
    snapshot = scene.snapshot
    yield line(
        ("dispatch ", "bold"),
        (clean(snapshot.graph), "bold cyan"),
        (f"  by {snapshot.order}  {elapsed(scene.now - scene.began_at)}", "dim"),
        cells=width,
    )
    yield line((clean(snapshot.cap.short), "dim"), cells=width)
    if not snapshot.store.reachable:
        since = elapsed(scene.now - snapshot.store.since)
        waiting = count(len(snapshot.store.unwritten), "change")
        problem = clean(snapshot.store.problem)
        yield line((f"store out of reach for {since}, {waiting} to write: {problem}", "bold red"), cells=width)
    if snapshot.paused:
        yield line((f"paused: {clean(snapshot.paused)}", "bold yellow"), cells=width)
    if scene.notice:
        yield line((clean(scene.notice), "bold yellow"), cells=width)
    yield progress(scene.counts, width)


def progress(counts: Mapping[SliceState, int], width: int) -> Text:
    """A bar of all slices by state, and the counts in words."""
    parts: list[tuple[str, str] | str] = [*_bar(counts, min(BAR_CELLS, width // 3)), " ", *_merged(counts)]
    for state, number in counts.items():
        if number and state is not SliceState.MERGED:
            parts += ["  ", (f"{number:,} {state.value.replace('_', ' ')}", STATE_STYLES[state])]
    return line(*parts, cells=width)


def _merged(counts: Mapping[SliceState, int]) -> Iterator[str]:
    yield f"{counts.get(SliceState.MERGED, 0):,}/{sum(counts.values()):,} merged"


def _bar(counts: Mapping[SliceState, int], cells: int) -> Iterator[tuple[str, str]]:
    """Each state its share of the cells, rounded so that they add up."""
    total = sum(counts.values())
    so_far = drawn = 0
    for state, mark in BAR_MARKS.items():
        so_far += counts.get(state, 0)
        until = round(so_far * cells / total) if total else 0
        yield mark * (until - drawn), STATE_STYLES[state]
        drawn = until


def _section(title: str, lines: int, rows: Iterable[Text], width: int) -> Iterator[Text]:
    if lines > 0:
        yield line((title, "bold"), cells=width)
        yield from rows


def _ids(width: int) -> int:
    """Cells for a slice's id."""
    return max(8, min(28, width // 4))


def _sessions(scene: Scene, rows: int, width: int) -> Iterator[Text]:
    for session in scene.sessions[: max(rows, 0)]:
        attempt = session.assignment_id.rpartition("@")[2]
        turn = f" turn {session.turn}" if session.turn > 1 else ""
        yield line(
            "  ",
            (fit(clean(session.slice_id), _ids(width)), "cyan"),
            f" {elapsed(scene.now - session.started_at):>6} ",
            (f"{clean(session.stage)}{turn}{f' attempt {attempt}' if attempt != '1' else ''}  ", ""),
            (clean(session.last_line), "dim"),
            cells=width,
        )


def _frontier(scene: Scene, rows: int, width: int) -> Iterator[Text]:
    for rank, slice_id in enumerate(scene.snapshot.frontier[: max(rows, 0)], 1):
        yield line(
            f"{rank:>4} ",
            fit(clean(slice_id), _ids(width)),
            (f" {clean(scene.waits.get(slice_id, ''))}", "dim"),
            cells=width,
        )


def _events(scene: Scene, rows: int, width: int) -> Iterator[Text]:
    for event in scene.events[-rows:] if rows > 0 else ():
        yield line("  ", *event_parts(event, scene.began_at), cells=width)


def event_parts(event: Event, began_at: float) -> tuple[tuple[str, str], ...]:
    """An event as the parts of a line: when it was since `began_at`, what it was, of which slice, and why."""
    slice_id = f"{clean(event.slice_id)}  " if event.slice_id else ""
    return (
        (f"{elapsed(event.at - began_at):>6}  ", "dim"),
        (f"{event.what:<{_EVENT_WORD}}  ", EVENT_STYLES.get(event.what, "")),
        (slice_id, "cyan"),
        (clean(event.detail), ""),
    )
