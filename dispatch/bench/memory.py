"""How many bytes a service keeps for each slice: measured in a process of its own, by the allocator's own count.

`python -m dispatch.bench.memory SHAPE COUNT` prints the number.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

from dispatch.bench.life import live, open_service
from dispatch.bench.shapes import SHAPES


def bytes_per_slice(shape: str, count: int) -> float:
    """What a graph keeps once all of it has merged, the slices themselves included, divided by their number."""
    command = [sys.executable, "-m", "dispatch.bench.memory", shape, str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def retained(shape: str, count: int) -> float:
    """The same, measured in this process."""
    with open_service(count) as (service, host):
        gc.collect()
        tracemalloc.start()
        try:
            live(service, host, SHAPES[shape](count))
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()


if __name__ == "__main__":
    print(retained(sys.argv[1], int(sys.argv[2])))  # noqa: T201 - this is what the parent reads
