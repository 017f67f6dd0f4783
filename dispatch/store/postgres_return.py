"""The way back to a server that went out of reach, in a thread of its own, because every step of it may hang.

Looking up a name, connecting and logging in have no end that this process could set to them all. The owner goes on
meanwhile, and asks in passing whether the connection is there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import attrs

from dispatch.errors import DispatchError, OwnershipLostError
from harness.database.postgres_wire import Wire

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0


@attrs.frozen
class Resumed:
    """A connection on which the owner goes on, its incarnation, and the number of the last batch that is stored."""

    wire: Wire
    incarnation: int
    written: int


class Return:
    """Calls `attempt` until it succeeds or finds the graph taken over. `problem` says what was in the way last."""

    def __init__(self, attempt: Callable[[], Resumed], problem: DispatchError) -> None:
        self.problem: DispatchError = problem
        self._attempt = attempt
        self._lock = threading.Lock()  # held for a moment: whoever takes the result, or gives up on it, is alone
        self._resumed: Resumed | None = None
        self._lost: OwnershipLostError | None = None
        self._over = threading.Event()
        self._abandoned = threading.Event()
        threading.Thread(target=self._run, name="dispatch-store-return", daemon=True).start()

    def take(self, wait_s: float = 0.0) -> Resumed | None:
        """The result, once; None if there is none yet. Raises `OwnershipLostError`."""
        self._over.wait(wait_s)
        with self._lock:
            if self._lost is not None:
                raise self._lost
            resumed, self._resumed = self._resumed, None
            return resumed

    def abandon(self) -> None:
        """Let the thread end by itself, and close what it comes back with."""
        self._abandoned.set()
        resumed = self.take() if self._lost is None else None
        if resumed is not None:
            resumed.wire.close()

    def _run(self) -> None:
        for pause_s in _pauses():
            try:
                resumed = self._attempt()
            except OwnershipLostError as lost:
                with self._lock:
                    self._lost = lost
                break
            except DispatchError as problem:
                self.problem = problem
            else:
                self._hand_over(resumed)
                break
            if self._abandoned.wait(pause_s):
                break
        self._over.set()

    def _hand_over(self, resumed: Resumed) -> None:
        with self._lock:
            if not self._abandoned.is_set():
                self._resumed = resumed
                return
        resumed.wire.close()


def _pauses() -> Iterator[float]:
    """Doubling up to the longest, each shortened by up to half at random, so that owners don't come back in step."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s * random.uniform(0.5, 1)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
