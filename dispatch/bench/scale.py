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
DEFAULT_SHAPES = ("free", "layered", "chain", "fan", "hotspot", "glob")
_SHORT_S, _SHORT_REPEATS = 0.125, 5  # a row is repeated so many times as often while it has taken less,
_LONG_S = 5.0  # and not any more once it has taken this


@attrs.frozen
class Row:
    """One shape at one size, in microseconds a slice: medians of the repeats, elapsed time unless said otherwise.

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
    shapes: Iterable[str] = DEFAULT_SHAPES,
    repeat: int = 3,
    progress: Callable[[str], None] = lambda _: None,
) -> Scale:
    """Measure every shape at every size, `repeat` times: short lives more often, and what takes long less often.

    `progress` is told, in words, what comes next.
    """
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
    taken_s, wanted = 0.0, repeat
    while len(lives) < wanted and taken_s < _LONG_S:
        floors.append(floor_s(slices))
        lives.append(service_life(slices))
        taken_s += lives[-1].life_s
        wanted = repeat if taken_s > _SHORT_S else repeat * _SHORT_REPEATS
    return lives, floors
