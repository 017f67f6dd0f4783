"""A process that works turns off for a measurement, whoever's they are.

Started as `python -m dispatch.bench.fleet_member MODULE:FUNCTION PLACE BATCH`. It says on stdout that it is ready, and
then, of each group of turns that are done for good, how many they are and when; it ends when its stdin does. Times are
those of the machine's monotonic clock, the same for all its processes.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

READY = "ready"


class Teller:
    """Tells whoever measures. May be used from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._started_at = 0.0

    def ready(self) -> None:
        """All that is done once is done."""
        self._tell(READY)

    def started(self) -> None:
        """A turn begins. Of those that begin between two calls of `done`, the first counts."""
        self._started_at = self._started_at or time.perf_counter()

    def done(self, count: int) -> None:
        """So many more turns are done, and it is committed."""
        started_at, self._started_at = self._started_at, 0.0
        now = time.perf_counter()
        if count:
            self._tell(f"{count} {started_at or now!r} {now!r}")

    def _tell(self, line: str) -> None:
        os.write(self._descriptor, f"{line}\n".encode())  # at once, and whole: it is shorter than a pipe's PIPE_BUF


#: Works turns off at a place, in batches of so many, until the event is set.
Work: TypeAlias = Callable[[str, int, Teller, threading.Event], None]


def main(work_name: str, place: str, batch: str) -> None:
    """Works until stdin ends, which it does with whoever measures."""
    module, _, function = work_name.partition(":")
    work: Work = getattr(importlib.import_module(module), function)
    over = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, name="bench-end", daemon=True).start()
    work(place, int(batch), Teller(sys.stdout.fileno()), over)


if __name__ == "__main__":
    main(*sys.argv[1:])
