"""A batch of changes as statements for PostgreSQL: for each kind of row one for a single row, one for many, or COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import attrs

from dispatch.store import codec
from dispatch.store.port import AttemptRow, Changes, KeyframeRow, LogRow, SliceRow
from dispatch.store.postgres_schema import SQL
from harness.database.postgres_wire import Statement, array, copy_row, copy_text, statement

COPY_FROM = 1000  #: so many new slices and more travel by COPY, which costs half as much for each
_BYTES_OF_A_ROW = 1000  # what is as large takes as long
_PIECE = 1000  # rows in one statement or one piece of a COPY, so that no message grows without bound
_Item = TypeVar("_Item")


@attrs.frozen
class Batch:
    """What one transaction writes: first `copied` by COPY, then `statements`. `ids` are those of all its slices."""

    copied: tuple[tuple[str, Iterable[bytes]], ...]
    statements: tuple[Statement, ...]
    ids: frozenset[str]
    rows: int


def batch_of(changes: Changes, graph: int, stored: set[str], *, copying: bool = True) -> Batch:
    """`stored`: ids of slices that are known to be there, whose declared part is not sent again.

    With `copying`, many new slices are sent by COPY, which the server refuses if any of them is there after all.
    """
    last = {row.slice.id: row for row in changes.slices}
    first = {row.slice.id: row for row in reversed(changes.slices)}
    new = [slice_id for slice_id in last if slice_id not in stored]
    copied: tuple[tuple[str, Iterable[bytes]], ...] = ()
    statements: list[Statement] = []
    if copying and len(new) >= COPY_FROM:
        copied = (
            (SQL["copy_slices"], _copied(_states_to_copy([last[name] for name in new], graph))),
            (SQL["copy_specs"], _copied(f"{codec.spec(first[name].slice)}\0{graph}\0{name}" for name in new)),
        )
        statements += _slices([last[name] for name in last if name in stored], graph)
    else:
        statements += _slices(list(last.values()), graph)
        statements += _specs("write_specs", [first[name] for name in new], graph)
    statements += _specs("rewrite_specs", [last[name] for name in changes.revised if name in last], graph)
    statements += _rest(changes, graph)
    rows = len(changes.slices) + len(changes.attempts) + len(changes.intents) + len(changes.log)
    if changes.keyframe is not None:
        rows += len(changes.keyframe.content) // _BYTES_OF_A_ROW
    return Batch(copied, tuple(statements), frozenset(new), rows)


def _slices(rows: list[SliceRow], graph: int) -> Iterator[Statement]:
    if len(rows) == 1:
        yield statement(SQL["write_slice"], *codec.state_columns(rows[0], graph))
        return
    for piece in _pieces(rows):
        *columns, _, ids = zip(*(codec.state_columns(row, graph) for row in piece), strict=True)
        yield _statement("write_slices", graph, [*columns, ids])


def _specs(name: str, rows: list[SliceRow], graph: int) -> Iterator[Statement]:
    for piece in _pieces(rows):
        specs, _, ids = zip(*(codec.spec_columns(row, graph) for row in piece), strict=True)
        yield _statement(name, graph, [specs, ids])


def _rest(changes: Changes, graph: int) -> Iterator[Statement]:
    if changes.graph is not None:
        yield statement(SQL["write_graph"], graph, changes.graph.graph_id, changes.graph.paused)
    attempts = {(row.slice_id, row.attempt): row for row in changes.attempts}
    yield from _attempts(list(attempts.values()), graph)
    for piece in _pieces(changes.forgotten):
        yield _statement("forget_intents", graph, [piece])
    intents = {row.intent.id: row for row in changes.intents}
    for rows in _pieces(list(intents.values())):
        *columns, _, ids = zip(*(codec.intent_columns(row, graph) for row in rows), strict=True)
        yield _statement("write_intents", graph, [*columns, ids])
    yield from _entries(changes.log, graph)
    if changes.keyframe is not None:
        yield keyframe_statement(changes.keyframe, graph)


def _attempts(rows: list[AttemptRow], graph: int) -> Iterator[Statement]:
    if len(rows) == 1:
        yield statement(SQL["write_attempt"], *codec.attempt_columns(rows[0], graph))
        return
    for piece in _pieces(rows):
        *columns, _, ids, numbers = zip(*(codec.attempt_columns(row, graph) for row in piece), strict=True)
        yield _statement("write_attempts", graph, [*columns, ids, numbers])


def _entries(rows: tuple[LogRow, ...], graph: int) -> Iterator[Statement]:
    if len(rows) == 1:
        yield statement(SQL["write_entry"], *codec.log_columns(rows[0], graph))
        return
    for piece in _pieces(rows):
        *columns, _, seqs = zip(*(codec.log_columns(row, graph) for row in piece), strict=True)
        yield _statement("write_entries", graph, [*columns, seqs])


def keyframe_statement(row: KeyframeRow, graph: int) -> Statement:
    values = statement("", graph, row.seq, row.at).values
    return Statement(SQL["write_keyframe"], (*values, b"\\x" + row.content.hex().encode()))


def _statement(name: str, graph: int, columns: Sequence[Sequence[Any]]) -> Statement:
    return Statement(SQL[name], (str(graph).encode(), *map(array, columns)))


def _states_to_copy(rows: list[SliceRow], graph: int) -> Iterator[str]:
    """Slices that are enqueued together differ in number and id alone: what they share is made into text once."""
    shared: object = None
    text = ""
    for row in rows:
        state = codec.state_between(row)
        if state != shared:
            shared = state
            _, *between, _, _ = codec.state_columns(row, graph)
            text = copy_row(*between, graph)
        yield f"{row.seq}\0{text}\0{row.slice.id}"


def _copied(rows: Iterator[str]) -> Iterator[bytes]:
    """Made as it is sent: the server works on one piece while the next is put together."""
    while piece := list(islice(rows, _PIECE)):
        yield copy_text(piece)


def _pieces(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[start : start + _PIECE] for start in range(0, len(items), _PIECE))
