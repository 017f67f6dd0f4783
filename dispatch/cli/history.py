"""`history` and `replay`: a graph's past, read beside whatever process runs it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatch.cli.options import GraphName, GraphRepository, Json, StoreUrl

if TYPE_CHECKING:
    from dispatch.offline import StoredGraph
    from dispatch.store.port import History, Reading
    from dispatch.view.history import Told

LATEST = 100  #: entries that are shown without `--limit`


def history(
    slice_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="A slice's id: its story alone.", show_default=False)
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="WHEN", help="The graph as it was then: a time, or an entry's number.", show_default=False
        ),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Nothing from before, e.g. 2h.", show_default=False)
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Nothing from after.", show_default=False)] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="The last N entries; 0 for all.")] = LATEST,
    repo: GraphRepository = None,
    store: StoreUrl = "",
    graph: GraphName = "",
    json: Json = False,
) -> None:
    """Tell what came in, what was decided, and why."""
    from dispatch.cli.ending import RefusedError

    if at and (slice_id or since or until):
        raise RefusedError("--at shows the whole graph at one moment; leave the slice, --since and --until out")
    name, url, log = _log_of(repo, store, graph)
    with log.reading(name) as reading:
        if at:
            _show_moment(name, url, reading, at, json=json)
        else:
            _show_entries(name, url, reading, slice_id, (since, until), limit, json=json)


def replay(repo: GraphRepository = None, store: StoreUrl = "", graph: GraphName = "", json: Json = False) -> int:
    """Check that what came in would be decided again as it was."""
    from dispatch.cli.output import output, print_document
    from dispatch.history import check
    from dispatch.view.history import verdict_document, verdict_lines

    name, _, log = _log_of(repo, store, graph)
    with log.reading(name) as reading:
        verdict = check(name, reading)
    if json:
        print_document(verdict_document(name, verdict))
    else:
        out = output()
        out.write(verdict_lines(verdict, out.width))
    return 0 if verdict.difference is None else 1


def _log_of(repository: Path | None, url: str, graph: str) -> tuple[str, str, History]:
    """The name of the graph that is meant, its store's URL, and the log of that store."""
    from dispatch.cli.choice import Choice
    from dispatch.cli.ending import RefusedError
    from dispatch.store.port import history_of

    choice = Choice.at(url, repository)
    name, log = choice.name(graph), history_of(choice.store)
    if log is None:
        raise RefusedError(f"{choice.store.url} keeps no log; name another store with --store")
    return name, choice.store.url, log


def _show_entries(
    name: str,
    url: str,
    reading: Reading,
    slice_id: str,
    span: tuple[str, str],
    limit: int,
    *,
    json: bool,
) -> None:
    from dispatch.cli.output import output, print_document
    from dispatch.cli.places import known_slice
    from dispatch.view.history import attempt_lines, history_document, left_out_line, told_lines

    names = {row.seq: row.slice.id for row in reading.contents.slices}
    if slice_id:
        known_slice(names.values(), name, slice_id)
    told, left_out = _entries(reading, names, slice_id, span, limit)
    attempts = [row for row in reading.contents.attempts if row.slice_id == slice_id]
    if json:
        story = (slice_id, attempts) if slice_id else None
        print_document(history_document(name, url, told, left_out, names, story))
        return
    out = output()
    for row in attempts:
        out.write(attempt_lines(row, out.width))
    if left_out:
        out.write([left_out_line(left_out, out.width)])
    for each in told:
        out.write(told_lines(each, slice_id, out.width))


def _entries(
    reading: Reading, names: dict[int, str], slice_id: str, span: tuple[str, str], limit: int
) -> tuple[list[Told], int]:
    """The last entries that are asked for, and how many more there are."""
    import time

    from dispatch.cli.moments import moment_of
    from dispatch.history import entries
    from dispatch.view.history import Told

    now = time.time()
    since = moment_of(span[0], now, "--since") if span[0] else float("-inf")
    until = moment_of(span[1], now, "--until") if span[1] else float("inf")
    kept: deque[Told] = deque(maxlen=limit or None)
    met = 0
    for row in entries(reading, 0):
        told = Told.of(row, names) if since <= row.at <= until else None
        if told is not None and told.concerns(slice_id):
            kept.append(told)
            met += 1
    return list(kept), met - len(kept)


def _show_moment(name: str, url: str, reading: Reading, at: str, *, json: bool) -> None:
    from dispatch.cli.output import output, print_document
    from dispatch.view.history import precisely
    from dispatch.view.stored import graph_document, graph_lines
    from dispatch.view.text import line

    then, seq, moment = _graph_at(name, url, reading, at)
    if json:
        print_document({"entry": seq, "at": precisely(moment), **graph_document(then)})
        return
    out = output()
    out.write([line((f"as it was after entry {seq}, {precisely(moment)}", "dim"), cells=out.width)])
    out.write(graph_lines(then, out.width))


def _graph_at(name: str, url: str, reading: Reading, at: str) -> tuple[StoredGraph, int, float]:
    """The graph as `list` shows one, with the entry after which it was so, and that one's time."""
    import datetime as dt
    import time

    from dispatch.cli.moments import reached
    from dispatch.history import moment
    from dispatch.offline import StoredGraph
    from dispatch.store import Claim

    then = moment(name, reading, reached(at, time.time(), "--at"))
    claim = Claim(name, then.epoch, dt.datetime.fromtimestamp(then.since, dt.UTC))
    machine = then.machine
    return StoredGraph(name, url, machine.contents(), claim, then.at, machine), then.seq, then.at
