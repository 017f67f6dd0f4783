"""`list`, `explain` and `log`: a stored graph as it stands, whether a process runs it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dispatch.cli.options import GraphName, GraphRepository, Json, SliceId, StoreUrl

if TYPE_CHECKING:
    from dispatch.offline import StoredGraph
    from dispatch.store import AttemptRow


def list_slices(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show it anew whenever it has changed, until ctrl-C.")
    ] = False,
    repo: GraphRepository = None,
    store: StoreUrl = "",
    graph: GraphName = "",
    json: Json = False,
) -> None:
    """List the slices of a stored graph, with the state of each."""
    from dispatch.cli.choice import Choice
    from dispatch.cli.follow import follow as following
    from dispatch.cli.output import output, print_document, print_line
    from dispatch.view.stored import graph_document, graph_lines

    choice, out = Choice.at(store, repo), output()

    def show(found: StoredGraph, first: bool) -> None:
        if json:
            print_line(graph_document(found))
        else:
            out.begin_anew(first)
            out.write(graph_lines(found, out.width))

    if follow:
        following(choice.store, choice.name(graph), show)
    elif json:
        print_document(graph_document(choice.graph(graph)))
    else:
        out.write(graph_lines(choice.graph(graph), out.width))


def explain(
    slice_id: SliceId, repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = "", json: Json = False
) -> None:
    """Say why a slice doesn't run now, and all that is known of it."""
    from dispatch.cli.choice import Choice
    from dispatch.cli.output import output, print_document
    from dispatch.cli.places import known_slice
    from dispatch.view.stored import explanation_document, explanation_lines

    found = Choice.at(store, repo).graph(graph)
    known_slice(found.machine.graph.nodes, found.name, slice_id)
    if json:
        print_document(explanation_document(found, slice_id))
    else:
        out = output()
        out.write(explanation_lines(found, slice_id, out.width))


def log(
    slice_id: SliceId,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", min=1, help="Which attempt; by default the last.", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing what comes until the attempt ends.")
    ] = False,
    repo: GraphRepository = None,
    store: StoreUrl = "",
    graph: GraphName = "",
    json: Json = False,
) -> None:
    """Print what an attempt at a slice has written. With --json: where that is, and how the attempt ended."""
    from dispatch.cli.choice import Choice
    from dispatch.cli.ending import RefusedError
    from dispatch.cli.logs import EndOfAttempt, follow_log, print_log
    from dispatch.cli.output import print_document
    from dispatch.cli.places import known_slice
    from dispatch.view.stored import attempt_document

    if json and follow:
        raise RefusedError("--json describes a log and --follow prints one; ask for one of them")
    choice = Choice.at(store, repo)
    found = choice.graph(graph)
    known_slice(found.machine.graph.nodes, found.name, slice_id)
    row = _attempt(found, slice_id, attempt)
    path = choice.log(found, slice_id, row.attempt)
    if json:
        print_document(attempt_document(row, path))
    elif follow:
        follow_log(path, EndOfAttempt(choice.store, found.name, slice_id, row.attempt))
    else:
        print_log(path)


def _attempt(found: StoredGraph, slice_id: str, attempt: int | None) -> AttemptRow:
    """The row of the attempt that is meant."""
    from dispatch.cli.ending import RefusedError

    rows = found.attempts(slice_id)
    if not rows:
        raise RefusedError(f"slice {slice_id!r} has not been started yet; `explain {slice_id}` says why")
    for row in rows:
        if row.attempt == (attempt or rows[-1].attempt):
            return row
    raise RefusedError(f"slice {slice_id!r} has had {len(rows)} attempts; none has the number {attempt}")
