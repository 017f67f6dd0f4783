"""A thread that looks at an authority whenever it tells of a change, and now and then when it doesn't."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from harness.fleet.errors import FleetError
from harness.fleet.ports import Watch

logger = logging.getLogger(__name__)

LOOK_S = 5.0  #: between two looks when nothing tells of a change
AGAIN_S = 1.0  #: before a look-out is opened again


class Follower:
    """From `start` to `close`. `look` is called in the thread, `watch` opens a look-out; either may raise."""

    def __init__(self, watch: Callable[[], Watch], look: Callable[[], None]) -> None:
        self._open, self._look = watch, look
        self._mutex = threading.Lock()
        self._closing = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name="fleet-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """When it returns, the thread has ended. Again, it does nothing."""
        with self._mutex:
            self._closing.set()
            watch = self._watch
        if watch is not None:
            watch.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except FleetError as problem:
                logger.warning("the fleet can't be followed for now: %s", problem)
            except Exception:
                logger.exception("a look at the fleet failed")
            self._closing.wait(AGAIN_S)

    def _follow(self) -> None:
        """With one look-out, for as long as it is well."""
        watch = self._open()
        try:
            with self._mutex:
                self._watch = watch
            while not self._closing.is_set():
                self._look()
                watch.wait(LOOK_S)
        finally:
            with self._mutex:
                self._watch = None
            watch.close()
