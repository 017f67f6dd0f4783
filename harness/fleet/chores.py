"""Work that takes its time, in a few threads; what has to wait for something is done again after a pause."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

logger = logging.getLogger(__name__)

#: The answer: in how many seconds it is to be done again, None if it is done.
Chore: TypeAlias = Callable[[], float | None]


class Chores:
    """Does chores from `start` to `close`, `threads` of them at once; those given before are done then."""

    def __init__(self, name: str, threads: int) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Chore]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def do(self, chore: Chore, after_s: float = 0.0) -> None:
        """In so many seconds, if it is not closed by then. Of two that are due, the first to be so comes first."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + after_s, next(self._numbers), chore))
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """No chore is begun any more; whether those under way have ended within so many seconds. Again, the same."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = time.monotonic() + timeout
        begun = [thread for thread in self._threads if thread.ident is not None]
        for thread in begun:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in begun)

    def _run(self) -> None:
        while (chore := self._next()) is not None:
            try:
                again_s = chore()
            except Exception:
                logger.exception("a chore failed")
                continue
            if again_s is not None:
                self.do(chore, again_s)

    def _next(self) -> Chore | None:
        """The next that is due, when it is; None once closed."""
        with self._changed:
            while not self._closed:
                left_s = self._due[0][0] - time.monotonic() if self._due else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left_s)
            return None
