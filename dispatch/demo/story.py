"""The demo from beginning to end: what is to be seen, the run, what came of it, and whether it is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from dispatch.cli.ending import DONE, INCOMPLETE
from dispatch.cli.output import Output, output
from dispatch.cli.run import Request, run_plan
from dispatch.demo.claims import Claim, claims
from dispatch.demo.evidence import GRAPH, gather
from dispatch.demo.operator import Operator
from dispatch.demo.playground import Playground, playground
from dispatch.view.text import clean, line, prose

WIDEST = 100  #: cells of a line of prose: longer ones are hard to read
INDENT = 6  #: cells
INTERRUPTED = 128  #: an exit status from here on: a signal ended the run

INTRODUCTION = (
    "A dozen slices of work are done on a throwaway git repository. Each is given to an agent: a real process in a "
    "git worktree of its own, which edits files and commits them. Its commits are then merged into main."
)
SCENES = (
    ("order", "schema, storage and layout, cart must merge before checkout"),
    ("contention", "search and filters share paths; schema and payments a hotspot"),
    ("a conflict", "prices and hours change one file, which nobody has declared"),
    ("a failure", "payments fails, and an operator gives it another chance"),
    ("steering", "the agent of layout asks a question, and the operator answers"),
    ("preemption", "hotfix becomes urgent while stocktaking is in its way"),
)
HISTORY_ROWS = 20
NEXT = "Now your own repository. docs/plans.md says how to write a plan; then:"
COMMANDS = (
    ("slice-dispatch plan PLAN", "checks it, and shows its order and a simulated schedule"),
    ("slice-dispatch run PLAN", "runs it"),
)


def run_demo(keep: Path | None, *, plain: bool, operator: Operator | None = None) -> int:
    """Show everything; the exit status is 0 only if all that was claimed has been seen."""
    operator = operator or Operator()
    out = output(plain=plain)
    with playground(keep) as place:
        out.write(_opening(place, out, kept=keep is not None))
        status = run_plan(_request(place, operator, plain=plain))
        if status > INTERRUPTED:
            out.write([line("the demo ends here, as it was interrupted", cells=_width(out))])
            return status
        found = claims(gather(place))
        out.write(_history(place, out))
        out.write(_verdict(found, operator.problem, out))
        out.write(_farewell(place, out, kept=keep is not None))
    return DONE if status == DONE and all(claim.kept for claim in found) else INCOMPLETE


def _request(place: Playground, operator: Operator, *, plain: bool) -> Request:
    return Request(
        plan=place.plan,
        repository=place.repository,
        store=place.store,
        graph=GRAPH,
        cap=None,
        wait=False,
        take_over=False,
        plain=plain,
        json=False,
        operator=operator,
        repeatable=False,
    )


def _width(out: Output) -> int:
    return min(out.width, out.chart_width, WIDEST)


def _title(words: str, width: int) -> Iterator[Text]:
    yield Text()
    yield from prose(words, "bold", width)


def _opening(place: Playground, out: Output, *, kept: bool) -> Iterator[Text]:
    width = _width(out)
    yield from prose(INTRODUCTION, "", width)
    yield Text()
    for name, words in SCENES:
        yield from _beside(f"  {name}", "cyan", words, "", 15, width)
    yield Text()
    fate = "where it stays" if kept else "which is removed at the end (--keep DIR keeps one)"
    yield from prose(f"It all happens in {clean(str(place.folder))}, {fate}.", "dim", width)
    yield Text()


def _history(place: Playground, out: Output) -> Iterator[Text]:
    width = _width(out)
    rows = place.git("log", "--graph", "--oneline", "--no-decorate", "main").splitlines()
    yield from _title("main afterwards, one merge a slice: git log --graph --oneline", width)
    for row in rows[:HISTORY_ROWS]:
        yield line("  ", clean(row), cells=width)
    if len(rows) > HISTORY_ROWS:
        yield line("  ", (f"and {len(rows) - HISTORY_ROWS} more rows", "dim"), cells=width)


def _verdict(found: list[Claim], problem: str, out: Output) -> Iterator[Text]:
    width = _width(out)
    yield from _title("What this shows, checked against git, the files and the agents' logs", width)
    for claim in found:
        mark, style = ("  ok  ", "green") if claim.kept else (" NOT  ", "bold red")
        yield from _beside(mark, style, claim.promise, "", INDENT, width)
        yield from _beside("", "", clean(claim.seen), "dim", INDENT, width)
    if problem:
        yield from prose(f"The operator could not go on: {clean(problem)}", "bold red", width)


def _beside(mark: str, mark_style: str, words: str, style: str, indent: int, width: int) -> Iterator[Text]:
    """Words set beside a mark, on as many lines as they need."""
    for text in prose(words, style, width - indent):
        yield line((f"{mark:<{indent}}", mark_style), (text.plain, style), cells=width)
        mark = ""


def _farewell(place: Playground, out: Output, *, kept: bool) -> Iterator[Text]:
    width = _width(out)
    yield Text()
    if kept:
        yield from prose(f"Look around in {clean(str(place.repository))}: git log, plan.toml, agent.py.", "", width)
    yield from prose(NEXT, "", width)
    for command, words in COMMANDS:
        yield from _beside(f"  {command}", "cyan", words, "", 29, width)
