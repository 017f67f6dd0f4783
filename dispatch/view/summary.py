"""What came of a run: the values, and how they are shown. The JSON form is documented in `docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.text import Text

from dispatch.slice import OCCUPYING, SliceState
from dispatch.store.port import AttemptRow
from dispatch.view.frame import STATE_STYLES
from dispatch.view.gantt import BLOCKS, Bar, Glyphs, Interval, gantt, legend
from dispatch.view.standing import Standing
from dispatch.view.text import clean, count, elapsed, fit, folded, line, moment, prose
from dispatch.views import Cap, SliceView

MERGED = "merged"
ROWS = 60  #: slices that are told one by one; the rest is counted
INDENT = 12  #: of what more there is to say of one
_ORDER = ("merged", "in review", "failed", "stranded", "held", "excluded", "paused", "canceled", "stopped", "queued")
_NEXT = {  # what can be done for a slice, and the options that a command needs to mean its graph
    "failed": "see `log {0}{1}`; mend the plan, or let `retry {0}{1}` queue it again, and `run` goes on",
    "in review": "once main has its branch, `run` goes on (`run --wait` waits for it); `merged {0}{1}` says so by hand",
    "held": "`release {0}{1}` lets it start, and `run` goes on",
}
_STYLES = {
    "merged": STATE_STYLES[SliceState.MERGED],
    "failed": STATE_STYLES[SliceState.FAILED],
    "in review": STATE_STYLES[SliceState.IN_REVIEW],
    "stranded": "yellow",
    "held": "yellow",
}


@attrs.frozen
class Ending:
    """What became of one slice. `outcome`: a state in words, or why it never got there (`stranded`, `held`, `stopped`).

    `intervals` and `lost` are its attempts in this run, in seconds since the run began; those in `lost` did not merge.
    """

    id: str
    title: str
    outcome: str
    reason: str
    attempts: int
    ran_s: float
    pull_request_url: str
    log: str
    intervals: tuple[Interval, ...]
    lost: tuple[Interval, ...]


@attrs.frozen
class Prediction:
    """The schedule that was simulated when the run began, in seconds: scaled so that the slices that merged take on
    paper, on the average, as long as they really took."""

    intervals: Mapping[str, Interval]
    capacity: int
    makespan_s: float


@attrs.frozen
class Summary:
    """One run. `others` counts the slices of the graph that the plan doesn't name; `interrupted` the signal's name.

    `reach` are the options, with a blank before them, that other commands need to mean this graph; None if they can't.
    `repeatable`: the same `run` can be given again.
    """

    graph: str
    store: str
    plan: str
    endings: tuple[Ending, ...]
    others: int
    wall_s: float
    sessions: int
    peak: int
    cap: Cap
    began_at: float
    interrupted: str
    prediction: Prediction | None
    reach: str | None = ""
    repeatable: bool = True

    @property
    def complete(self) -> bool:
        """Whether all slices of the plan have merged."""
        return all(ending.outcome == MERGED for ending in self.endings)


def ending_of(
    view: SliceView, attempts: Iterable[AttemptRow], standing: Standing, began_at: float, ended_at: float, log: str
) -> Ending:
    """What became of a slice, from its last view, its attempts, and where the graph stands.

    An attempt that is lost has no end that anybody knows, and none is made up for it.
    """
    ran: list[Interval] = []
    lost: list[Interval] = []
    for row in attempts:
        if row.started_at >= began_at and (row.ended_at or not row.outcome):
            interval = (row.started_at - began_at, (row.ended_at or ended_at) - began_at)
            (ran if row.outcome == MERGED or _reviewed(view, row) else lost).append(interval)
    outcome, reason = _outcome(view, standing)
    return Ending(
        id=view.id,
        title=view.title,
        outcome=outcome,
        reason=reason,
        attempts=view.attempt,
        ran_s=sum(end - start for start, end in (*ran, *lost)),
        pull_request_url=view.pull_request_url,
        log=log,
        intervals=tuple(ran),
        lost=tuple(lost),
    )


def _reviewed(view: SliceView, row: AttemptRow) -> bool:
    """Whether it was its pull request that merged the slice."""
    return view.state is SliceState.MERGED and bool(view.pull_request_url) and row.attempt == view.attempt


def _outcome(view: SliceView, standing: Standing) -> tuple[str, str]:
    if view.state in OCCUPYING:
        return "stopped", "the next run starts it again, from the work that it left, if any"
    if view.state is not SliceState.QUEUED:
        reason = {SliceState.FAILED: view.error, SliceState.IN_REVIEW: view.pull_request_url}.get(view.state, "")
        return view.state.value.replace("_", " "), reason
    block = standing.blocked.get(view.id)
    return (block.kind, block.text) if block else ("queued", view.error)


def peak_of(attempts: Iterable[AttemptRow], began_at: float, ended_at: float) -> tuple[int, int]:
    """How many attempts began in the run, and how many of them ran at once at the most."""
    moments: list[tuple[float, int]] = []
    sessions = running = most = 0
    for row in attempts:
        if row.started_at >= began_at:
            sessions += 1
            if row.ended_at or not row.outcome:
                moments += ((row.started_at, 1), (row.ended_at or ended_at, -1))
    for _, change in sorted(moments):  # at one instant, what ends ends first
        running += change
        most = max(most, running)
    return sessions, most


def bars(summary: Summary) -> list[Bar]:
    """What ran in the run, and what was predicted to."""
    predicted = summary.prediction.intervals if summary.prediction else {}
    drawn = (
        Bar(clean(ending.id), ending.intervals, ending.lost, predicted.get(ending.id)) for ending in summary.endings
    )
    return [bar for bar in drawn if bar.ran or bar.lost or bar.predicted]


def summary_lines(summary: Summary, width: int, chart_width: int, glyphs: Glyphs = BLOCKS) -> Iterator[Text]:
    """The summary as people read it: lines of at most `width` cells, its chart of at most `chart_width`."""
    merged = sum(ending.outcome == MERGED for ending in summary.endings)
    style = "bold green" if summary.complete else "bold yellow"
    yield line(
        (f"{merged:,} of {count(len(summary.endings), 'slice')} merged", style), f" {_figures(summary)}", cells=width
    )
    yield from _endings(summary.endings, width)
    if summary.others:
        yield line(
            (f"  and {count(summary.others, 'slice')} of the graph that the plan doesn't name", "dim"), cells=width
        )
    yield from _chart(summary, width, chart_width, glyphs)
    yield from _advice(summary, width)


def _figures(summary: Summary) -> str:
    sessions = f"{count(summary.sessions, 'session')}, at most {summary.peak} at once"
    return f"in {elapsed(summary.wall_s)}: {sessions if summary.sessions else 'no session was needed'}"


def _endings(endings: Sequence[Ending], width: int) -> Iterator[Text]:
    """Those that did not merge first of all, since they are what is to be looked at."""
    ordered = sorted(endings, key=lambda ending: (ending.outcome == MERGED, _ORDER.index(ending.outcome)))
    ids = min(28, width // 3, max((len(ending.id) for ending in ordered[:ROWS]), default=0))
    tries = max((len(_tries(ending)) for ending in ordered[:ROWS]), default=0)
    for ending in ordered[:ROWS]:
        ran = elapsed(ending.ran_s) if ending.ran_s else ""
        head = (
            (f"  {ending.outcome:<9} ", _STYLES.get(ending.outcome, "")),
            (fit(clean(ending.id), ids), "cyan"),
            f" {ran:>6} {_tries(ending):<{tries}} ",
        )
        yield from folded(head, clean(ending.reason), indent=INDENT, cells=width)
        if ending.log and ending.outcome == "failed":
            yield line((f"{'':{INDENT}}log: {clean(ending.log)}", "dim"), cells=max(width, len(ending.log) + 20))
    if len(ordered) > ROWS:
        yield line((f"  and {len(ordered) - ROWS:,} more", "dim"), cells=width)


def _tries(ending: Ending) -> str:
    return f"{ending.attempts} attempts" if ending.attempts > 1 else ""


def _chart(summary: Summary, width: int, chart_width: int, glyphs: Glyphs) -> Iterator[Text]:
    drawn = bars(summary)
    lines = gantt(drawn, chart_width, glyphs=glyphs, most=ROWS) if any(bar.ran or bar.lost for bar in drawn) else []
    if not lines:
        return
    yield Text()
    yield from lines
    yield from prose(legend(drawn, glyphs), "dim", width)
    if summary.prediction:
        yield from prose(_basis(summary.prediction), "dim", width)


def _basis(prediction: Prediction) -> str:
    return (
        f"predicted {elapsed(prediction.makespan_s)}: simulated at the start for cap {prediction.capacity}, "
        "scaled to what merged slices took on the average"
    )


def _advice(summary: Summary, width: int) -> Iterator[Text]:
    if summary.interrupted:
        if summary.repeatable:
            yield from prose("stopped; the same `run` goes on from here", "", width)
        return
    for outcome, words in _NEXT.items():
        first = next((ending.id for ending in summary.endings if ending.outcome == outcome), "")
        if first and summary.reach is not None:
            words = words.format(first, summary.reach)
            yield from _with_commands(clean(words), summary.reach, width)


def _with_commands(words: str, reach: str, width: int) -> Iterator[Text]:
    """Advice to type something. With names and paths in it, it stays in one piece, so that it can be copied."""
    return iter([line(words, cells=max(width, 2 * len(words)))]) if reach else prose(words, "", width)


def summary_document(summary: Summary) -> dict[str, Any]:
    """The same for programs."""
    prediction = summary.prediction
    return {
        "graph": summary.graph,
        "store": summary.store,
        "plan": summary.plan,
        "complete": summary.complete,
        "interrupted": summary.interrupted or None,
        "began_at": moment(summary.began_at),
        "wall_s": round(summary.wall_s, 3),
        "sessions": summary.sessions,
        "peak": summary.peak,
        "cap": {"places": summary.cap.places, "derivation": summary.cap.derivation},
        "predicted": None
        if prediction is None
        else {"makespan_s": round(prediction.makespan_s, 3), "cap": prediction.capacity},
        "slices": [_ending_document(ending, prediction) for ending in summary.endings],
        "others": summary.others,
    }


def _ending_document(ending: Ending, prediction: Prediction | None) -> dict[str, Any]:
    predicted = prediction.intervals.get(ending.id) if prediction else None
    return {
        "id": ending.id,
        "title": ending.title,
        "outcome": ending.outcome,
        "reason": ending.reason,
        "attempts": ending.attempts,
        "ran_s": round(ending.ran_s, 3),
        "pull_request_url": ending.pull_request_url or None,
        "log": ending.log or None,
        "ran": [_rounded(interval) for interval in ending.intervals],
        "lost": [_rounded(interval) for interval in ending.lost],
        "predicted": _rounded(predicted) if predicted else None,
    }


def _rounded(interval: Interval) -> list[float]:
    return [round(interval[0], 3), round(interval[1], 3)]
