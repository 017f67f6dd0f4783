"""Gantt charts in text: what ran when, against what was predicted, one line a slice, as wide as there is room."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from rich.cells import cell_len
from rich.text import Text

from dispatch.view.text import cut, elapsed, fit, line

Interval = tuple[float, float]

LABEL_SHARE = 3  #: the labels take at most this part of the width
NARROWEST = 10  #: cells of a chart below which none is drawn


@attrs.frozen
class Glyphs:
    """What a cell of a chart looks like. `both`: it ran as predicted; `ran`: it ran, and was not predicted to;
    `predicted`: the other way round; `lost`: an attempt ran that did not merge."""

    both: str
    ran: str
    predicted: str
    lost: str


BLOCKS = Glyphs("█", "▓", "░", "x")
ASCII = Glyphs("#", "=", ".", "x")


@attrs.frozen
class Bar:
    """A line of a chart, in seconds or whatever the unit is: attempts that merged, or still run, or are only on paper;
    those that did not merge; and the prediction, if there is one."""

    label: str
    ran: tuple[Interval, ...] = ()
    lost: tuple[Interval, ...] = ()
    predicted: Interval | None = None

    @property
    def begin(self) -> float:
        """When it first ran; when it was predicted to if it never did."""
        starts = [start for start, _ in (*self.ran, *self.lost)]
        return min(starts) if starts else self.predicted[0] if self.predicted else 0.0

    @property
    def end(self) -> float:
        ends = [end for _, end in (*self.ran, *self.lost)]
        return max([*ends, self.predicted[1] if self.predicted else 0.0])


def gantt(bars: Sequence[Bar], width: int, *, glyphs: Glyphs = BLOCKS, unit: str = "s", most: int = 60) -> list[Text]:
    """The chart as lines of at most `width` cells, bars by their begin; of more than `most` bars the first."""
    shown = sorted(bars, key=lambda bar: bar.begin)[:most]
    horizon = max((bar.end for bar in shown), default=0.0)
    labels = max((cell_len(bar.label) for bar in shown), default=0)
    labels = min(labels, width // LABEL_SHARE)
    cells = width - labels - 1
    if cells < NARROWEST or not shown:
        return []
    lines = [
        line((fit(bar.label, labels), ""), " ", *_painted(bar, horizon, cells, glyphs), cells=width) for bar in shown
    ]
    lines.append(line((" " * (labels + 1) + _axis(horizon, cells, unit), "dim"), cells=width))
    if len(bars) > len(shown):
        lines.append(line((f"and {len(bars) - len(shown):,} more", "dim"), cells=width))
    return lines


def legend(bars: Sequence[Bar], glyphs: Glyphs = BLOCKS) -> str:
    """What the marks in the chart of these bars mean."""
    parts = []
    if any(bar.predicted for bar in bars):
        parts += [f"{glyphs.both} ran as predicted", f"{glyphs.ran} ran", f"{glyphs.predicted} predicted"]
    else:
        parts.append(f"{glyphs.both} runs")
    if any(bar.lost for bar in bars):
        parts.append(f"{glyphs.lost} an attempt that did not merge")
    return "   ".join(parts)


def _painted(bar: Bar, horizon: float, cells: int, glyphs: Glyphs) -> list[tuple[str, str]]:
    """Runs of equal marks, each with its style."""
    predicted = _span(bar.predicted, horizon, cells) if bar.predicted else range(0)
    row = [" "] * cells
    for at in predicted:
        row[at] = glyphs.predicted
    for interval in bar.lost:
        for at in _span(interval, horizon, cells):
            row[at] = glyphs.lost
    for interval in bar.ran:
        for at in _span(interval, horizon, cells):
            row[at] = glyphs.both if at in predicted or bar.predicted is None else glyphs.ran
    styles = {glyphs.both: "green", glyphs.ran: "yellow", glyphs.predicted: "dim", glyphs.lost: "red"}
    runs: list[tuple[str, str]] = []
    for mark in row:
        if runs and runs[-1][0][0] == mark:
            runs[-1] = runs[-1][0] + mark, runs[-1][1]
        else:
            runs.append((mark, styles.get(mark, "")))
    return runs


def _span(interval: Interval, horizon: float, cells: int) -> range:
    """The cells an interval covers: at least one, so that nothing that ran is invisible."""
    if horizon <= 0:
        return range(1)
    first = min(cells - 1, int(interval[0] / horizon * cells))
    last = round(interval[1] / horizon * cells)
    return range(first, max(first + 1, min(cells, last)))


def _axis(horizon: float, cells: int, unit: str) -> str:
    """0 at the left end, the horizon at the right, the middle where there is room."""
    words = [_at(horizon * part, unit) for part in (0.5, 1)]
    end = cut(words[1], cells - 1)
    middle = cells // 2
    if middle > 4 and middle + len(words[0]) + 2 + len(end) <= cells:
        left = fit("0", middle) + words[0]
        return fit(left, cells - len(end)) + end
    return fit("0", cells - len(end)) + end


def _at(value: float, unit: str) -> str:
    return elapsed(value) if unit == "s" else f"{value:g}"
