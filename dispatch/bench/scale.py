"""`bench scale`: what a slice costs, in time and memory, and how that grows with the graph.

Every figure of the product has its floor beside it, measured in turns in the same run: machines differ, and one that is
busy with something else slows both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import attrs

from dispatch.bench.environment import environment
from dispatch.bench.life import PLACES, Life, floor_s, service_life
from dispatch.bench.lone import Lone, measure_lone
from dispatch.bench.memory import bytes_per_slice
from dispatch.bench.shapes import SHAPES
from dispatch.slice import Slice

SIZES = (1_000, 10_000, 100_000)
FULL_SIZE = 1_000_000
_LONG_S = 0.125  # what takes less is repeated more often,
_MOST = 5  # so many times as often


@attrs.frozen
class Row:
    """One shape at one size, in microseconds a slice: medians of the repeats.

    `enqueue_us`: until `enqueue_many` has answered; `life_us`: from there on too, until all had merged and the service
    had settled; `cpu_us`: processor time of the whole process for the same; `floor_us`: the plain loop. Bytes are those
    that the service keeps when all have merged, the slices themselves included.
    """

    shape: str
    slices: int
    enqueue_us: float
    life_us: float
    cpu_us: float
    bytes_per_slice: float
    floor_us: float

    @property
    def ratio(self) -> float:
        """How many times the floor a life costs."""
        return self.life_us / self.floor_us


@attrs.frozen
class Scale:
    """A run of the benchmark: its rows, by shape and then by size, a lone call, and where it ran."""

    rows: tuple[Row, ...]
    lone: Lone
    env: dict[str, Any]


def measure_scale(
    sizes: Sequence[int] = SIZES,
    shapes: Iterable[str] = tuple(SHAPES),
    repeat: int = 3,
    progress: Callable[[str], None] = lambda _: None,
) -> Scale:
    """Measure every shape at every size; `progress` is told, in words, what comes next."""
    env = environment() | {"places": PLACES, "repeat": repeat}
    progress("a lone call")
    lone = measure_lone()
    rows = tuple(_measure(shape, size, repeat, progress) for shape in shapes for size in sorted(sizes))
    return Scale(rows, lone, env)


def _measure(shape: str, size: int, repeat: int, progress: Callable[[str], None]) -> Row:
    progress(f"{size:,} slices, {shape}")
    slices = tuple(SHAPES[shape](size))
    lives, floors = _in_turns(slices, repeat)
    del slices
    per_slice = 1e6 / size
    return Row(
        shape=shape,
        slices=size,
        enqueue_us=median(life.enqueue_s for life in lives) * per_slice,
        life_us=median(life.life_s for life in lives) * per_slice,
        cpu_us=median(life.cpu_s for life in lives) * per_slice,
        bytes_per_slice=bytes_per_slice(shape, size),
        floor_us=median(floors) * per_slice,
    )


def _in_turns(slices: tuple[Slice, ...], repeat: int) -> tuple[list[Life], list[float]]:
    """Lives and floors, one after the other."""
    lives, floors = list[Life](), list[float]()
    while len(lives) < repeat or (len(lives) < _MOST * repeat and sum(life.life_s for life in lives) < _LONG_S):
        floors.append(floor_s(slices))
        lives.append(service_life(slices))
    return lives, floors
