"""A stored graph, one of its slices, one of its attempts: as people and as programs read them (see `docs/cli.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from dispatch.offline import LOST, UNMEASURED, StoredGraph, states
from dispatch.slice import SliceState
from dispatch.store.port import AttemptRow
from dispatch.view.frame import STATE_STYLES, progress
from dispatch.view.standing import Standing, standing
from dispatch.view.text import Part, clean, count, elapsed, fit, folded, line, moment
from dispatch.views import SliceView

INDENT = 4  #: of what didn't fit on the line before


def graph_lines(graph: StoredGraph, width: int) -> Iterator[Text]:
    """The graph's slices in enqueue order, one a line."""
    snapshot = graph.snapshot()
    where = standing(snapshot)
    yield line(("graph ", "bold"), (clean(graph.name), "bold cyan"), (f"  {_owner(graph)}", "dim"), cells=width)
    if snapshot.paused:
        yield line((f"paused: {clean(snapshot.paused)}", "bold yellow"), cells=width)
    yield progress(states(snapshot.slices), width)
    ids = min(40, max((len(view.id) for view in snapshot.slices), default=0))
    for view in snapshot.slices:
        yield line(
            (f"  {view.state.value.replace('_', ' '):<9} ", STATE_STYLES[view.state]),
            (fit(clean(view.id), ids), "cyan"),
            f"  {_about(view, where)}",
            cells=width,
        )


def _owner(graph: StoredGraph) -> str:
    if graph.claim is None:
        return "no process runs it"
    return f"run by another process since {graph.claim.since:%Y-%m-%d %H:%M:%S} UTC"


def _about(view: SliceView, where: Standing) -> str:
    """What there is to say about it in one line: why it waits or ended as it did, else its title."""
    block = where.blocked.get(view.id)
    if block is not None:
        return clean(block.text)
    match view.state:
        case SliceState.FAILED:
            return clean(view.error) or "no reason was given"
        case SliceState.IN_REVIEW:
            return clean(view.pull_request_url)
        case SliceState.MERGED if view.ran_s:
            return f"in {elapsed(view.ran_s)}"
        case SliceState.QUEUED if view.waits_for:
            return f"needs {clean(', '.join(view.waits_for))}"
        case _:
            return clean(view.title) if view.title != view.id else ""


def graph_document(graph: StoredGraph) -> dict[str, Any]:
    """The same for programs."""
    snapshot = graph.snapshot()
    where = standing(snapshot)
    return {
        "graph": graph.name,
        "store": graph.url,
        "owner": _owner_document(graph),
        "paused": snapshot.paused or None,
        "states": {state.value: number for state, number in states(snapshot.slices).items()},
        "frontier": list(snapshot.frontier),
        "slices": [_view_document(view) | _block_document(view, where) for view in snapshot.slices],
        "intents": [
            {
                "id": entry.intent.id,
                "statement": entry.intent.statement,
                "scope": entry.intent.scope or None,
                "urgency": entry.intent.urgency.name.lower(),
                "deadline": entry.intent.deadline.isoformat() if entry.intent.deadline else None,
                "attached": list(entry.attached),
            }
            for entry in snapshot.intents
        ],
    }


def _owner_document(graph: StoredGraph) -> dict[str, Any] | None:
    return {"since": moment(graph.claim.since.timestamp()), "epoch": graph.claim.epoch} if graph.claim else None


def _block_document(view: SliceView, where: Standing) -> dict[str, Any]:
    block = where.blocked.get(view.id)
    return {"blocked": None if block is None else {"kind": block.kind, "text": block.text, "slice": block.root or None}}


def _view_document(view: SliceView) -> dict[str, Any]:
    return {
        "id": view.id,
        "title": view.title,
        "state": view.state.value,
        "rank": view.priority.rank,
        "critical_path": round(view.priority.critical_path, 3),
        "urgency": view.priority.urgency.name.lower() if view.priority.urgency else None,
        "attempt": view.attempt,
        "closes": view.closes,
        "waits_for": list(view.waits_for),
        "hold": view.hold or None,
        "error": view.error or None,
        "branch": view.branch or None,
        "pull_request_url": view.pull_request_url or None,
        "enqueued_at": moment(view.enqueued_at) or None,
        "started_at": moment(view.started_at) or None,
        "ended_at": moment(view.ended_at) or None,
        "ran_s": round(view.ran_s, 3),
    }


def explanation_lines(graph: StoredGraph, slice_id: str, width: int) -> Iterator[Text]:
    """Every reason for which a slice doesn't run, why it ranks where it does, and its attempts."""
    explanation = graph.explain(slice_id)
    view = explanation.view
    state = view.state.value.replace("_", " ")
    title = f"  {clean(view.title)}" if view.title != view.id else ""
    yield line((clean(view.id), "bold cyan"), " is ", (state, STATE_STYLES[view.state]), title, cells=width)
    for reason in explanation.reasons:
        yield from folded(["  "], clean(reason.text), (f"[{reason.code.value}]", "dim"), indent=INDENT, cells=width)
    if view.state is SliceState.QUEUED and graph.claim is None:
        yield from folded(["  "], "no process runs the graph; start it with `run`", indent=INDENT, cells=width)
    if view.state is SliceState.QUEUED:
        yield from folded(["  "], (_rank(view, measured=_measured(graph)), "dim"), indent=INDENT, cells=width)
    if view.checkpoint and view.state is SliceState.QUEUED:
        yield from folded([("  for the next attempt: ", "dim")], clean(view.checkpoint), indent=INDENT, cells=width)
    for row in graph.attempts(slice_id):
        yield from folded([f"  attempt {row.attempt}: "], *_attempt(row), indent=INDENT, cells=width)


def _measured(graph: StoredGraph) -> bool:
    """Whether weights are seconds, measured by slices that have merged; else every slice weighs 1."""
    return any(node.state is SliceState.MERGED and node.ran_s for node in graph.machine.graph.nodes.values())


def _rank(view: SliceView, *, measured: bool) -> str:
    priority = view.priority
    place = f"rank {priority.rank}" if priority.rank else "not in the frontier"
    urgency = priority.urgency.name if priority.urgency else "none"
    length = priority.critical_path
    path = elapsed(length) if measured else count(round(length), "slice")
    return f"{place}: critical path {path}, urgency {urgency}, enqueued as {priority.declared_order}"


def _attempt(row: AttemptRow) -> Iterator[Part]:
    if row.outcome and row.ended_at:
        yield f"{row.outcome} after {elapsed(row.ended_at - row.started_at)}"
    else:
        yield row.outcome or "runs"
    yield moment(row.started_at), "dim"
    yield "it ended with the process that ran it" if row.outcome == LOST else clean(row.detail)


def explanation_document(graph: StoredGraph, slice_id: str) -> dict[str, Any]:
    """The same for programs."""
    explanation = graph.explain(slice_id)
    return {
        "graph": graph.name,
        "owner": _owner_document(graph),
        "slice": _view_document(explanation.view),
        "reasons": [
            {
                "code": reason.code.value,
                "text": reason.text,
                "slice": reason.slice_id or None,
                "pattern": reason.pattern or None,
                "witness": reason.witness or None,
            }
            for reason in explanation.reasons
        ],
        "cap": UNMEASURED if graph.owned else None,
        "checkpoint": explanation.view.checkpoint or None,
        "attempts": [attempt_fields(row) for row in graph.attempts(slice_id)],
    }


def attempt_fields(row: AttemptRow) -> dict[str, Any]:
    """One attempt for programs, as far as every document tells it."""
    return {
        "attempt": row.attempt,
        "branch": row.branch,
        "started_at": moment(row.started_at),
        "ended_at": moment(row.ended_at) or None,
        "outcome": row.outcome or None,
        "detail": row.detail or None,
    }


def attempt_document(row: AttemptRow, log: Path) -> dict[str, Any]:
    """One attempt for programs, with where its output is."""
    return {"slice": row.slice_id, **attempt_fields(row), "log": str(log), "log_exists": log.exists()}
