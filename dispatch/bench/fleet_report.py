"""A run of `bench fleet` as a document and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.table import Table

from dispatch.bench.fleet import FLOOR, WHAT, Cost, Fleet

_TITLES = {"admit_one": "admit one", "admit_many": "admit many", "start": "start p50"}
_PER_TURN = {"start": "alone", "work_1": "burst"}  # of what commits and bytes are shown, and under which name


def fleet_document(fleet: Fleet) -> dict[str, Any]:
    """The run as JSON values; `docs/benchmarks.md` describes them."""
    rows = [
        {name: round(value, 3) if isinstance(value, float) else value for name, value in attrs.asdict(row).items()}
        for row in fleet.rows
    ]
    return {"fleet": {"rows": rows, "env": fleet.env}}


def fleet_tables(fleet: Fleet) -> Iterator[Table]:
    """Of each database: a row for each contender, with the ratio to the floor after each figure."""
    for store in dict.fromkeys(row.store for row in fleet.rows):
        yield _table(store, [row for row in fleet.rows if row.store == store])


def _table(store: str, rows: list[Cost]) -> Table:
    table = Table(
        title=f"What a turn costs on {store}, µs (× {FLOOR})",
        caption="alone: one turn at a time, from admission to end; burst: many at once, one worker",
        caption_justify="left",
    )
    table.add_column(store)
    writes = any(row.commits is not None for row in rows)
    for title in (*(_TITLES.get(what, what.replace("_", " ")) for what in WHAT), "start p99", *_extra_titles(writes)):
        table.add_column(title, justify="right")
    for who in dict.fromkeys(row.who for row in rows):
        costs = {row.what: row for row in rows if row.who == who}
        times = [f"{costs[what].us:,.0f} ({costs[what].ratio:.1f})" for what in WHAT]
        table.add_row(who, *times, f"{costs['start'].p99_us or 0:,.0f}", *_extras(costs, writes))
    return table


def _extra_titles(writes: bool) -> list[str]:
    if not writes:
        return []
    return [f"{what} {how}" for how in _PER_TURN.values() for what in ("commits", "log bytes")]


def _extras(costs: dict[str, Cost], writes: bool) -> list[str]:
    if not writes:
        return []
    found = [costs[what] for what in _PER_TURN]
    return [text for cost in found for text in (f"{cost.commits or 0:.2g}", f"{cost.wal_bytes or 0:,.0f}")]
