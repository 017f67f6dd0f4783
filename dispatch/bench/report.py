"""A run of the benchmark as a document and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from rich.table import Table

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
