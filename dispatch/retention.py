"""How long the log of a graph is kept, and the thread that takes what has become too old out of it.

From time to time, eight times in the span that is kept, the owner takes a *keyframe*: the whole graph at one entry.
Once a keyframe is older than the span, nothing before it is needed. So what is kept is at least the span, and at most
an eighth more. The owner only hands over values that nobody changes; a thread of its own, on a connection of its own,
encodes and stores them, and deletes what is too old, some hundreds of entries in a transaction, so that the owner's
writes wait for one such transaction at most. Where it is cut off, what is left is taken by the next one.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time

import attrs

from dispatch import keyframe as keyframes
from dispatch.errors import DispatchError, StoreError, StoreUnavailableError
from dispatch.keyframe import Keyframe
from dispatch.machine import Machine
from dispatch.store.port import History, KeyframeRow, Logged

logger = logging.getLogger(__name__)

VARIABLE = "DISPATCH_HISTORY_DAYS"
DAYS = 30.0  #: for which entries are kept if nothing else is said
ENTRIES = 1_000_000  #: so many are kept at most, and an eighth more, however young they are
_PARTS = 8  # keyframes in the span that is kept
_LEAST_S, _LEAST_ENTRIES = 3600.0, 1000  # between two keyframes: less would cost more than it saves
_DAY_S = 86_400.0
_BATCH = 500  # entries that go in one transaction
_PAUSE_S = 0.05  # between two: whoever waits for the database's lock gets it then
_RETRY_S = 60.0  # after the store refused


class RetentionError(DispatchError):
    """The setting can't be read; the message says which, and what it may be."""


@attrs.frozen
class Retention:
    """Entries that are younger than `days` are kept, but not many more than the last `entries`. 0 days keep an hour."""

    days: float = DAYS
    entries: int = ENTRIES

    @classmethod
    def of(cls, days: float | None) -> Retention:
        """`days`; by default what the environment says, else 30. Raises `RetentionError`."""
        text = os.environ.get(VARIABLE, "") if days is None else str(days)
        try:
            found = float(text or DAYS)
        except ValueError:
            found = math.nan
        if not found >= 0:
            name = VARIABLE if days is None else "history_days"
            raise RetentionError(f"{name} is {text!r:.40}; give a number of days, 0 or more, such as 30")
        return cls(found)

    def wants_keyframe(self, newest: tuple[int, float], last: int, now: float) -> bool:
        """Whether it is time for another keyframe at entry `last`; `newest` is the seq and time of the last one."""
        seq, at = newest
        step_s = max(self.days * _DAY_S / _PARTS, _LEAST_S)
        return last > seq and (now - at >= step_s or last - seq >= max(self.entries // _PARTS, _LEAST_ENTRIES))

    def outlived(self, logged: Logged, now: float) -> int:
        """The seq of the newest keyframe before which nothing needs to be kept, 0 for none."""
        kept_s = max(self.days * _DAY_S, _LEAST_S)
        old = [seq for seq, at in logged.keyframes if now - at >= kept_s or logged.last - seq >= self.entries]
        return max(old, default=0)


class Pruner:
    """Keeps a graph's log within its retention. `look` is the owner's, once in a while, when all is durable.

    `began`: when the graph did, in Unix seconds. `history` is used in a thread that runs while there is work.
    """

    def __init__(self, history: History, graph: str, retention: Retention, logged: Logged, began: float) -> None:
        self._history, self._graph, self._retention = history, graph, retention
        self._keyframes = logged.keyframes
        self._began = began
        self._pruned = 0  # up to this keyframe all is gone, as far as this process knows
        self._retry_at = 0.0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, machine: Machine, now: float) -> None:
        """Begin what is due. Takes next to no time, but for a keyframe: some tenths of a second for 100,000 slices."""
        if machine.journal is None or now < self._retry_at or (self._thread is not None and self._thread.is_alive()):
            return
        last = machine.journal.last
        frame: tuple[int, float, Keyframe] | None = None
        if self._retention.wants_keyframe(max(self._keyframes, default=(0, self._began)), last, now):
            frame = last, now, machine.keyframe()
        outlived = self._retention.outlived(Logged(last, self._keyframes), now)
        if frame is not None or outlived > self._pruned:
            self._retry_at = now + _RETRY_S
            self._thread = threading.Thread(
                target=self._work, args=(frame, outlived), name="dispatch-pruner", daemon=True
            )
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """Let it end after the transaction that is under way."""
        self._ending.set()
        self.join(timeout)

    def join(self, timeout: float) -> None:
        """Wait until nothing is under way."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _work(self, frame: tuple[int, float, Keyframe] | None, outlived: int) -> None:
        """A worker's door: whatever happens is said, and tried again later."""
        try:
            if frame is not None:
                self._keep(*frame)
            if outlived > self._pruned:
                self._prune(outlived)
        except StoreUnavailableError as busy:  # others write without a pause, say: there is no hurry
            logger.info("the log of graph %r is pruned later: %s", self._graph, busy)
            return
        except StoreError as problem:
            logger.warning("the log of graph %r can't be pruned: %s", self._graph, problem)
            return
        except Exception:
            logger.exception("the log of graph %r can't be pruned", self._graph)
            return
        self._retry_at = 0.0

    def _keep(self, seq: int, at: float, keyframe: Keyframe) -> None:
        self._history.keep(self._graph, KeyframeRow(seq, at, keyframes.encoded(keyframe)))
        self._keyframes = (*self._keyframes, (seq, at))

    def _prune(self, keyframe: int) -> None:
        gone, began = 0, time.monotonic()
        while (number := self._history.prune(self._graph, keyframe, _BATCH)) == _BATCH:
            gone += number
            if self._ending.wait(_PAUSE_S):
                return
        self._pruned = keyframe
        self._keyframes = tuple(frame for frame in self._keyframes if frame[0] >= keyframe)
        if gone + number:
            logger.info("%d old entries were taken out of the log in %.1f s", gone + number, time.monotonic() - began)
