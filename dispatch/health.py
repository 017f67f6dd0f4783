"""How the owner of a graph is: all that is known of it without asking it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from dispatch.errors import DispatchError, NotRunningError
from dispatch.reply import AwaitableReply, BlockingReply, NoAnswerYet, Reply


def claim_clock() -> float:
    """Seconds by a clock that goes on while the process or the machine is suspended: a claim runs out meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC)


class Health:
    """How the owner is, readable from any thread: its store's problem, what it died of, how often the graph changed."""

    def __init__(self) -> None:
        self.store_problem = ""
        self.failure: DispatchError | None = None
        self.changes = 0
        self.owned_until = math.inf  #: when the claim on the graph runs out if it isn't renewed, by `claim_clock`
        self.own: set[threading.Thread] = set()  #: the service's threads: one that waits for an answer waits for itself
        self._watching = threading.Lock()
        self._watchers: list[tuple[int, Reply]] = []

    def owned(self) -> bool:
        """Whether the graph is certainly still this service's: its claim was renewed in time, and it has not ended."""
        return self.failure is None and claim_clock() < self.owned_until

    def gone(self) -> NotRunningError:
        """A new error for each caller whom the owner doesn't answer any more, or not yet; the cause is chained."""
        failure = self.failure
        error = NotRunningError(str(failure) if failure else "the service is not running; start() it first")
        error.__cause__ = failure.__cause__ if isinstance(failure, NotRunningError) else failure
        return error

    def change(self) -> None:
        """The graph has changed and may be looked at. Costs next to nothing while nobody waits for it."""
        self.changes += 1
        if self._watchers:
            with self._watching:
                self._tell_watchers()

    @contextlib.contextmanager
    def watched(self, since: int, reply: Reply) -> Iterator[None]:
        """Have `reply` answered with the number of changes once it is beyond `since`, or the owner has ended."""
        with self._watching:
            self._watchers.append((since, reply))  # before anything is compared, or a change could slip through
            self._tell_watchers()
        try:
            yield
        finally:
            with self._watching:
                self._watchers = [watcher for watcher in self._watchers if watcher[1] is not reply]

    def wait(self, since: int, timeout: float) -> int:
        """The number of changes once it is beyond `since`, or the owner has ended; else after `timeout` seconds."""
        reply = BlockingReply()
        with self.watched(since, reply), contextlib.suppress(NoAnswerYet):
            reply.wait(timeout)
        return self.changes

    async def wait_async(self, since: int, timeout: float) -> int:
        """The same for a task under asyncio or trio."""
        reply = AwaitableReply()
        with self.watched(since, reply), contextlib.suppress(NoAnswerYet):
            await reply.wait(timeout)
        return self.changes

    def _tell_watchers(self) -> None:
        changes, ended = self.changes, self.failure is not None
        for since, reply in self._watchers:
            if changes > since or ended:
                reply.answer(changes)
        self._watchers = [] if ended else [watcher for watcher in self._watchers if changes <= watcher[0]]
