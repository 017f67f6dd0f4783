"""What ended long ago goes: items with their outcomes, messages and contents. Dead letters stay."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from harness.fleet.errors import FleetError, FleetUnavailableError
from harness.fleet.ports import Authority

logger = logging.getLogger(__name__)

EVERY_S = 3600.0  #: between two rounds, more or less, so that workers that began together don't prune together
DAY_S = 86_400.0


class Pruner:
    """A thread from `start` to `stop`. Every worker has one, and any of them does for all.

    `keep_days` is how long an end is kept, by the authority's clock; 0 is for good. `guarded` runs the thread, and sees
    to what it raises. It has nothing to do with leases, since there may be much to prune, and leases can't wait.
    """

    def __init__(self, authority: Authority, keep_days: float, guarded: Callable[[Callable[[], None]], None]) -> None:
        self._authority, self._keep_days = authority, keep_days
        self._ending = threading.Event()
        self._thread = threading.Thread(target=guarded, args=(self._run,), name="fleet-pruner", daemon=True)

    def start(self) -> None:
        if self._keep_days:
            self._thread.start()

    def stop(self) -> None:
        """A round that is under way goes on by itself: it is made of small transactions, and may be broken off."""
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S * random.uniform(0.5, 1.5)):
            try:
                self.prune()
            except FleetUnavailableError as problem:
                logger.warning("nothing was pruned: %s", problem)
            except FleetError:  # such as by an authority that was closed meanwhile
                if not self._ending.is_set():
                    raise

    def prune(self) -> int:
        """How many items went."""
        return self._authority.prune(self._authority.tally().at - self._keep_days * DAY_S)
