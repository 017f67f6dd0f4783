"""How many bytes a service keeps for each slice: what a process of its own has grown by.

That counts the allocator's slack as well, as the machine does. Of small graphs there are several at once, since a
process grows by pages and more.

`python -m dispatch.bench.memory SHAPE COUNT` prints the number.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys

import psutil

from dispatch.bench.life import live, open_service
from dispatch.bench.shapes import SHAPES

_ENOUGH = 20_000  # slices in all,
_MOST = 20  # in so many graphs at most: each has threads of its own
_FEW = 1_000


def bytes_per_slice(shape: str, count: int) -> float:
    """What a graph keeps once all of it has merged, the slices themselves included, divided by their number."""
    command = [sys.executable, "-m", "dispatch.bench.memory", shape, str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def grown(shape: str, count: int) -> float:
    """The same, of this process: right only in one that has done nothing else."""
    graphs = min(_MOST, -(-_ENOUGH // count))
    with contextlib.ExitStack() as open_ones:
        _live(shape, _FEW, open_ones)  # what is imported or grown once is not the slices'
        before = _resident()
        for _ in range(graphs):
            _live(shape, count, open_ones)
        return (_resident() - before) / (graphs * count)


def _live(shape: str, count: int, open_ones: contextlib.ExitStack) -> None:
    service, host = open_ones.enter_context(open_service(count))
    live(service, host, SHAPES[shape](count))


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    print(grown(sys.argv[1], int(sys.argv[2])))  # noqa: T201 - this is what the parent reads
