"""A run of the benchmark as a document and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from rich.table import Table

from dispatch.bench.durable import Durable
from dispatch.bench.scale import Row, Scale

REFERENCE = "free"  #: the shape that others are held against
_COLUMNS = ("enqueue µs", "life µs", "CPU µs", "bytes", "floor µs", "x floor", "x smallest", "x free")


def scale_document(scale: Scale) -> dict[str, Any]:
    """The run as JSON values; `docs/benchmarks.md` describes them."""
    rows = [attrs.asdict(row) | {"ratio": row.ratio} for row in scale.rows]
    lone = attrs.asdict(scale.lone) | {"ratio": scale.lone.ratio}
    return {"scale": {"rows": [_rounded(row) for row in rows], "lone": _rounded(lone), "env": scale.env}}


def scale_table(scale: Scale) -> Table:
    """The rows, with what each is a multiple of: the floor, its shape's smallest size, free slices of the same size."""
    table = Table(title="What a slice costs", caption=_lone(scale), caption_justify="left")
    table.add_column("shape")
    table.add_column("slices", justify="right")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    last = ""
    for row in scale.rows:
        table.add_row(
            "" if row.shape == last else row.shape,
            f"{row.slices:,}",
            *(f"{value:.1f}" for value in (row.enqueue_us, row.life_us, row.cpu_us)),
            f"{row.bytes_per_slice:,.0f}",
            *(f"{value:.1f}" for value in (row.floor_us, row.ratio)),
            _multiple(row, next(other for other in scale.rows if other.shape == row.shape)),
            _multiple(row, _reference(scale.rows, row.slices)),
        )
        last = row.shape
    return table


def durable_document(durable: Durable) -> dict[str, Any]:
    """The run as JSON values; `docs/benchmarks.md` describes them."""
    rows = [_rounded(attrs.asdict(cost) | {"ratio": cost.ratio}) for cost in durable.rows]
    aside = _rounded({"sync_us": durable.sync_us, "pgbench_us": durable.pgbench_us})
    return {"durable": {"rows": rows, **aside, "env": durable.env}}


def durable_table(durable: Durable) -> Table:
    """The rows, and below them what the disk and the server cost by themselves."""
    table = Table(title="What a change costs that is on the disk", caption=_asides(durable), caption_justify="left")
    for name in ("store", "what"):
        table.add_column(name)
    for name in ("µs", "floor µs", "x floor", "commits", "log bytes", "peak bytes", "floor bytes"):
        table.add_column(name, justify="right")
    last = ""
    for cost in durable.rows:
        table.add_row(
            "" if cost.store == last else cost.store,
            cost.what,
            *(f"{value:,.1f}" for value in (cost.product_us, cost.floor_us, cost.ratio)),
            f"{cost.commits:.2g}",
            *(
                "" if value is None else f"{value:,.0f}"
                for value in (cost.log_bytes, cost.peak_bytes, cost.floor_bytes)
            ),
        )
        last = cost.store
    return table


def _asides(durable: Durable) -> str:
    disk = f"A synced write beside the SQLite file: {durable.sync_us:.0f} µs."
    server = durable.pgbench_us
    return disk if server is None else f"{disk} A transaction of pgbench -N: {server:.0f} µs."


def _reference(rows: Sequence[Row], slices: int) -> Row | None:
    return next((row for row in rows if row.shape == REFERENCE and row.slices == slices), None)


def _multiple(row: Row, other: Row | None) -> str:
    return "" if other is None or other is row else f"{row.life_us / other.life_us:.1f}"


def _lone(scale: Scale) -> str:
    lone = scale.lone
    return (
        f"A lone enqueue answers in {lone.enqueue_us:.0f} µs, a bare actor's ask in {lone.ask_us:.0f} µs: "
        f"{lone.ratio:.1f} times as much."
    )


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
