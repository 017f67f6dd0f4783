"""What is read of a graph in a PostgreSQL database. Nobody waits for the owner then, and so it may take its time."""

from __future__ import annotations

import operator
from collections.abc import Callable

from dispatch.collector import collector_paused
from dispatch.store import codec
from dispatch.store.ownership import Held
from dispatch.store.port import Contents, GraphRow, Logged
from dispatch.store.postgres_schema import SQL
from dispatch.store.process import Owner
from harness.database.postgres_schema import BEGIN_READING, COMMIT, limits
from harness.database.postgres_wire import Wire, statement

READING_PATIENCE_S = 30.0  #: how long a claim, a load or a peek waits on a server that says nothing
LOCK_TIMEOUT_S = 5.0  #: how long a claim waits for a lock; a write waits for less than the patience, to hear of it
STATEMENT_TIMEOUT_S = 30.0  #: after which the server ends a transaction by itself, if its owner is suspended or gone
_BY_SEQ_AND_ID = operator.itemgetter(1, 0)
_PARTS = ("read_slices", "read_specs", "read_attempts", "read_intents", "read_last_entry", "read_keyframes")


def find(wire: Wire, graph: str, clock: Callable[[], float] | None) -> tuple[float, int, GraphRow | None, Held | None]:
    """The time by the database's clock, the key of the graph of that name, 0 for none, its row and its claim."""
    asked = statement(SQL["find_graph"], graph, None if clock is None else clock())
    (result,) = wire.run([asked], READING_PATIENCE_S, binary=True)
    ((now, key, graph_id, paused, *owner, epoch, since, expires_at),) = wire.rows(result)
    row = None if graph_id is None else GraphRow(graph_id, paused)
    held = None if epoch is None else Held(graph, epoch, Owner(*owner), since, expires_at)
    return now, key or 0, row, held


def snapshot(wire: Wire, graph: str, clock: Callable[[], float] | None) -> tuple[float, Contents, Held | None]:
    """The time, all of a graph, and its claim, read at one moment."""
    begin(wire)
    now, key, row, held = find(wire, graph, clock)
    found = contents(wire, key, row)
    wire.run([COMMIT], READING_PATIENCE_S)
    return now, found, held


def begin(wire: Wire) -> None:
    """A transaction that sees one moment to its end."""
    wire.run([BEGIN_READING, limits(LOCK_TIMEOUT_S, 10 * STATEMENT_TIMEOUT_S)], READING_PATIENCE_S)


def contents(wire: Wire, key: int, row: GraphRow | None) -> Contents:
    """All of the graph of that key, whose row is `row`."""
    asked = [statement(SQL[name], key) for name in _PARTS]
    with collector_paused():
        parts = [wire.rows(result) for result in wire.run(asked, READING_PATIENCE_S, binary=True)]
        states, declared, attempt_rows, intent_rows, ((last,),), keyframes = parts
        states.sort(key=_BY_SEQ_AND_ID)
        specs = dict(declared)
        slices = codec.decoded(lambda row: codec.stated(codec.declared(row[0], specs[row[0]]), row[1:]), states)
        attempts = codec.decoded(codec.attempt_row, attempt_rows)
    intents = codec.decoded(codec.intent_row, intent_rows)
    logged = Logged(last, tuple(keyframes))
    return Contents(row, tuple(slices), tuple(attempts), tuple(intents), logged)
