"""What a plan promises before it is run, as people and as programs read it. The JSON form is in `docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.text import Text

from dispatch.forecast import Exclusion, Forecast, Why
from dispatch.intent import Urgency
from dispatch.slice import Slice
from dispatch.text import listed
from dispatch.view.gantt import BLOCKS, Bar, Glyphs, gantt
from dispatch.view.text import clean, count, fit, folded, hold_words, line, prose
from dispatch.views import Cap

ROWS = 60  #: of each list; what is beyond it is counted
MEMBERS = 12  #: slices named of a group that exclude one another
INDENT = 4  #: of what didn't fit on the line before


@attrs.frozen(eq=False)
class Prospect:
    """A plan with its forecast. Every slice is expected to take 1: nothing has been measured.

    `urgency` is the strongest that the plan's intents give a slice.
    """

    path: str
    name: str
    slices: tuple[Slice, ...]
    urgency: Mapping[str, Urgency]
    cap: Cap
    forecast: Forecast


def prospect_lines(prospect: Prospect, width: int, chart_width: int, glyphs: Glyphs = BLOCKS) -> Iterator[Text]:
    """Lines of at most `width` cells, the chart of at most `chart_width`."""
    on_paper = prospect.forecast
    edges = on_paper.schedule.plan.order.number_of_edges()
    yield line(
        (clean(prospect.name), "bold cyan"),
        f": {count(len(prospect.slices), 'slice')}, {count(edges, 'dependency', 'dependencies')}",
        cells=width,
    )
    yield from _slices(prospect, width)
    yield from _contention(on_paper, width)
    yield from _path(on_paper, width)
    yield from _schedule(prospect, width, chart_width, glyphs)


def _slices(prospect: Prospect, width: int) -> Iterator[Text]:
    yield Text()
    yield line(("slices", "bold"), cells=width)
    shown = prospect.slices[:ROWS]
    ids = max(len(each.id) for each in shown)
    titles = min(40, max((len(each.title) for each in shown if each.title != each.id), default=0))
    before = prospect.forecast.schedule.plan.order.predecessors
    for each in shown:
        title = clean(each.title) if each.title != each.id else ""
        head = ("  ", (fit(clean(each.id), min(ids, 40)), "cyan"), "  " if titles else "", fit(title, titles), "  ")
        facts = "; ".join(_facts(prospect, each, list(before(each.id))))
        yield from folded(head, (facts, "dim"), indent=INDENT, cells=width)
    if len(prospect.slices) > ROWS:
        yield line((f"  and {len(prospect.slices) - ROWS:,} more", "dim"), cells=width)


def _facts(prospect: Prospect, each: Slice, before: Sequence[str]) -> Iterator[str]:
    if before:
        yield f"needs {listed(tuple(map(clean, before)), 6)}"
    touched = (*each.touch.paths, *(f"#{name}" for name in each.touch.hotspots))
    if touched:
        yield f"touches {listed(tuple(map(clean, touched)), 6)}"
    if each.id in prospect.urgency:
        yield f"urgency {prospect.urgency[each.id].name}"
    if each.hold:
        yield clean(hold_words(each.hold))


def _contention(on_paper: Forecast, width: int) -> Iterator[Text]:
    yield Text()
    yield line(("never at once", "bold"), cells=width)
    if not on_paper.exclusions:
        yield line(("  no two slices contend", "dim"), cells=width)
    for exclusion in on_paper.exclusions[:ROWS]:
        members = listed(tuple(map(clean, exclusion.members)), MEMBERS)
        yield from folded(["  ", (members, "cyan"), "  "], (_why(exclusion), "dim"), indent=INDENT, cells=width)
    if len(on_paper.exclusions) > ROWS:
        yield line((f"  and {len(on_paper.exclusions) - ROWS:,} more groups", "dim"), cells=width)
    if on_paper.partial:
        yield line(("  so many patterns overlap that not all of them were looked at", "yellow"), cells=width)


def _why(exclusion: Exclusion) -> str:
    names = tuple(map(clean, exclusion.names))
    match exclusion.why:
        case Why.HOTSPOT:
            return f"hotspot {names[0]}"
        case Why.PATTERN:
            return f"all touch {names[0]}"
        case Why.OVERLAP:
            return f"{names[0]} and {names[1]} both match {clean(exclusion.witness)}"
        case Why.DECLARED:
            return "declared"


def _path(on_paper: Forecast, width: int) -> Iterator[Text]:
    yield Text()
    yield line(("critical path", "bold"), f" {on_paper.path_length:g}", cells=width)
    path = tuple(map(clean, on_paper.critical_path))
    shown = path if len(path) <= ROWS else (*path[:ROWS], f"and {len(path) - ROWS:,} more")
    yield from folded(["  "], (" -> ".join(shown), "cyan"), indent=INDENT, cells=width)


def _schedule(prospect: Prospect, width: int, chart_width: int, glyphs: Glyphs) -> Iterator[Text]:
    schedule, bound = prospect.forecast.schedule, prospect.forecast.lower_bound
    yield Text()
    yield line(
        ("simulated schedule", "bold"),
        f" {schedule.makespan:g} with cap {prospect.cap.places}, at most {schedule.concurrency} at once;"
        f" no schedule is below {bound:g}",
        cells=width,
    )
    yield from prose(f"every slice counts 1: nothing is measured yet; {clean(prospect.cap.derivation)}", "dim", width)
    bars = [Bar(clean(name), (interval,)) for name, interval in schedule.intervals.items()]
    yield from gantt(bars, chart_width, glyphs=glyphs, unit="", most=ROWS)


def prospect_document(prospect: Prospect) -> dict[str, Any]:
    """The same for programs, in full."""
    on_paper = prospect.forecast
    plan, schedule = on_paper.schedule.plan, on_paper.schedule
    return {
        "plan": prospect.path,
        "name": prospect.name,
        "slices": [_slice_document(each, prospect) for each in prospect.slices],
        "edges": [list(edge) for edge in plan.order.edges],
        "contention": [
            {
                "why": exclusion.why.value,
                "names": list(exclusion.names),
                "witness": exclusion.witness or None,
                "slices": list(exclusion.members),
            }
            for exclusion in on_paper.exclusions
        ],
        "contention_is_partial": on_paper.partial,
        "critical_path": {"slices": list(on_paper.critical_path), "length": on_paper.path_length},
        "cap": {"places": prospect.cap.places, "derivation": prospect.cap.derivation},
        "lower_bound": on_paper.lower_bound,
        "makespan": schedule.makespan,
        "concurrency": schedule.concurrency,
    }


def _slice_document(each: Slice, prospect: Prospect) -> dict[str, Any]:
    start, finish = prospect.forecast.schedule.intervals[each.id]
    return {
        "id": each.id,
        "title": each.title or each.id,
        "kind": each.recipe.kind,
        "paths": list(each.touch.paths),
        "hotspots": list(each.touch.hotspots),
        "urgency": prospect.urgency[each.id].name.lower() if each.id in prospect.urgency else None,
        "hold": each.hold or None,
        "start": start,
        "finish": finish,
    }
