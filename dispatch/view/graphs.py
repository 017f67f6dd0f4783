"""The graphs of a store, as people and as programs read them (see `docs/cli.md`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from rich.text import Text

from dispatch.offline import StoredGraph, states
from dispatch.view.frame import STATE_STYLES
from dispatch.view.text import clean, count, fit, line, moment


@attrs.frozen
class Entry:
    """A graph, and the branch that it merges into in the repository one stands in; None if it doesn't belong there."""

    graph: StoredGraph
    branch: str | None


def graphs_lines(entries: Sequence[Entry], url: str, repository: str | None, width: int) -> Iterator[Text]:
    """One line for each graph. `repository` is None outside of any."""
    own = sum(entry.branch is not None for entry in entries)
    here = f", {own:,} of {clean(repository)}" if repository else ""
    yield line((f"{count(len(entries), 'graph')} in {clean(url)}{here}", "dim"), cells=width)
    names = min(40, max((len(entry.graph.name) for entry in entries), default=0))
    for entry in entries:
        yield line(
            (f"  {'here' if entry.branch else '':<4} ", "bold"),
            (fit(clean(entry.graph.name), names), "cyan"),
            *_about(entry),
            cells=width,
        )


def _about(entry: Entry) -> Iterator[tuple[str, str] | str]:
    for state, number in states(entry.graph.slices()).items():
        yield "  "
        yield (f"{number:,} {state.value.replace('_', ' ')}", STATE_STYLES[state])
    if entry.branch:
        yield (f"  into {clean(entry.branch)}", "dim")
    if entry.graph.claim is not None:
        yield f"  running since {moment(entry.graph.claim.since.timestamp())}"


def graphs_document(entries: Sequence[Entry], url: str, repository: str | None) -> dict[str, Any]:
    """The same for programs."""
    return {
        "store": url,
        "repository": repository,
        "graphs": [
            {
                "graph": entry.graph.name,
                "belongs_here": entry.branch is not None,
                "branch": entry.branch,
                "owner": _owner(entry.graph),
                "states": {state.value: number for state, number in states(entry.graph.slices()).items()},
            }
            for entry in entries
        ],
    }


def _owner(graph: StoredGraph) -> dict[str, Any] | None:
    return {"since": moment(graph.claim.since.timestamp()), "epoch": graph.claim.epoch} if graph.claim else None
