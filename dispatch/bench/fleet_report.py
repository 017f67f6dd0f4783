"""A run of `bench fleet` as a document and as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from rich.table import Table

from dispatch.bench.fleet import ALONE, BURSTS, CREWS, FLOOR, Cost, Fleet

_WRITTEN = (f"work_{CREWS[0]}", f"end_{CREWS[0]}")  # of which commits and bytes are shown


def fleet_document(fleet: Fleet) -> dict[str, Any]:
    """The run as JSON values; `docs/benchmarks.md` describes them."""
    rows = [
        {name: round(value, 3) if isinstance(value, float) else value for name, value in attrs.asdict(row).items()}
        for row in fleet.rows
    ]
    return {"fleet": {"rows": rows, "env": fleet.env}}


def fleet_tables(fleet: Fleet) -> Iterator[Table]:
    """Of each database, turns in bursts and turns one at a time: a row for each contender, with ratios to the floor."""
    for store in dict.fromkeys(row.store for row in fleet.rows):
        rows = [row for row in fleet.rows if row.store == store]
        yield _table(f"What a turn costs on {store}, µs (× {FLOOR})", rows, BURSTS)
        yield _table(f"A turn alone on {store}, from admission, µs: half within, 99 in 100 (× {FLOOR})", rows, ALONE)


def _table(title: str, rows: list[Cost], columns: tuple[str, ...]) -> Table:
    table = Table(title=title, caption="work, start, commit, end: by so many worker processes", caption_justify="left")
    table.add_column(rows[0].store)
    written = [what for what in _WRITTEN if what in columns and any(row.commits is not None for row in rows)]
    for name in (*(what.replace("_", " ") for what in columns), *("commits", "log bytes") * len(written)):
        table.add_column(name, justify="right")
    for who in dict.fromkeys(row.who for row in rows):
        costs = {row.what: row for row in rows if row.who == who}
        table.add_row(who, *(_cell(costs[what]) for what in columns), *_extras([costs[what] for what in written]))
    return table


def _cell(cost: Cost) -> str:
    late = "" if cost.p99_us is None else f", {cost.p99_us:,.0f}"
    return f"{cost.us:,.0f}{late} ({cost.ratio:.1f})"


def _extras(found: list[Cost]) -> Iterator[str]:
    for cost in found:
        yield f"{cost.commits or 0:.2g}"
        yield f"{cost.wal_bytes or 0:,.0f}"
