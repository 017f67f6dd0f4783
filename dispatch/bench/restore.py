"""What it takes to read a graph back, in a process that does nothing else: seconds, and bytes at the highest.

`python -m dispatch.bench.restore product|floor GRAPH` prints both; the store's URL is in `DISPATCH_STORE`, as it may
hold a password. The floor is the same rows, fetched by the database's driver alone.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import attrs

from dispatch.bench.bare import rows_of
from dispatch.bench.instant import InstantHost
from dispatch.capping import FixedCap
from dispatch.service import DispatchService


@attrs.frozen
class Taken:
    """Seconds, and by how many bytes the process has grown at the highest."""

    seconds: float
    bytes: float


def measure_restore(what: str, url: str, graph: str) -> Taken:
    """`what` is "product" or "floor"."""
    done = subprocess.run(
        [sys.executable, "-m", "dispatch.bench.restore", what, graph],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"DISPATCH_STORE": url},
    )
    return Taken(*map(float, done.stdout.split()))


def _restore(url: str, graph: str) -> Taken:
    service = DispatchService(InstantHost(0), url, graph, measures=FixedCap(1))
    before, began = _highest(), time.perf_counter()
    with service:
        return Taken(time.perf_counter() - began, _highest() - before)


def _read(url: str, graph: str) -> Taken:
    before, began = _highest(), time.perf_counter()
    rows = rows_of(url, graph)
    taken = Taken(time.perf_counter() - began, _highest() - before)
    assert rows["slices"], "the graph has slices"
    return taken


def _highest() -> float:
    """Not `getrusage`: what that tells a child includes what its parent had."""
    gc.collect()
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    assert found is not None, "Linux tells it"
    return float(found[1]) * 1024


if __name__ == "__main__":
    measure = {"product": _restore, "floor": _read}[sys.argv[1]]
    taken = measure(os.environ["DISPATCH_STORE"], sys.argv[2])
    print(taken.seconds, taken.bytes)  # noqa: T201 - this is what the parent reads
