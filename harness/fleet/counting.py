"""Counting what an authority holds, for those who ask again and again, without keeping its database busy by it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from harness.fleet.ports import Registry, Tally

SHARE = 10.0  #: a count that took so long is good for so many times as long
BRIEF_S = 0.05  #: one that took less is made anew each time


class Counts:
    """A registry's tally; of several that ask at once, one counts. May be used from any thread."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._clock = registry, clock
        self._mutex = threading.Lock()
        self._last: Tally | None = None
        self._good_until = -math.inf

    def tally(self) -> Tally:
        """Not older than ten times as long as it takes to make one. Raises what `Registry.tally` raises."""
        with self._mutex:
            began = self._clock()
            if self._last is not None and began < self._good_until:
                return self._last
            self._last = self._registry.tally()
            took = self._clock() - began
            self._good_until = began + SHARE * took if took >= BRIEF_S else -math.inf
            return self._last
