"""One place that turns a call into a message for the owner and waits for the answer, in a thread or in a task."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pykka

from dispatch.errors import DispatchError, StoreUnavailableError, TimedOutError
from dispatch.health import Health
from dispatch.reply import AwaitableReply, BlockingReply, NoAnswerYet, Reply

DEFAULT_TIMEOUT_S = 30.0
_LOOK_S = 1.0  # how often a waiting caller makes sure that the owner still lives


class Deadline:
    """When a call that takes several steps must be done: `timeout` seconds from now, or never (None)."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = math.inf if timeout is None else timeout
        self._end = time.monotonic() + self.timeout

    @property
    def left(self) -> float:
        """In seconds, never negative."""
        return max(0.0, self._end - time.monotonic())


class Line:
    """A way to the owner. Raises `NotRunningError` when there is none to answer."""

    def __init__(self) -> None:
        self.health = Health()
        self._owner: pykka.ActorRef[Any] | None = None
        self._early: list[Any] | None = None
        self._opening = threading.Lock()

    def expect(self) -> None:
        """Keep what is told from now on, unless it wants an answer, for the owner that is to come."""
        self._early = []

    def open(self, owner: pykka.ActorRef[Any]) -> None:
        with self._opening:
            for item in self._early or ():
                owner.tell((item, None))
            self._owner, self._early = owner, None

    def close(self) -> None:
        with self._opening:
            self._owner = self._early = None

    @property
    def is_open(self) -> bool:
        return self._owner is not None

    @property
    def is_alive(self) -> bool:
        """Whether there is an owner that has not ended."""
        return self._owner is not None and self._owner.is_alive()

    def tell(self, item: Any, reply: Reply | None = None) -> None:
        """Put a message into the owner's inbox, without waiting."""
        owner = self._owner
        if owner is None:
            with self._opening:
                owner = self._owner
                if owner is None and self._early is not None and reply is None:
                    self._early.append(item)
                    return
        try:
            if owner is not None:
                owner.tell((item, reply))
                return
        except pykka.ActorDeadError:
            pass  # between two words: it has ended
        raise self.health.gone()

    def check_thread(self) -> None:
        """Refuse, at once, to let one of the service's own threads wait for the service."""
        if threading.current_thread() in self.health.own:
            raise RuntimeError("this call would wait for its own thread; make it from another one, or use `aio`")

    def check_begun(self) -> None:
        """Refuse to wait for an owner that there has never been."""
        if self._owner is None and self.health.failure is None:
            raise self.health.gone()

    def ask(self, item: Any, timeout: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """The owner's answer to `item`; blocks the calling thread for at most `timeout` seconds (None: no limit)."""
        return self.ask_by(item, Deadline(timeout))

    def ask_by(self, item: Any, deadline: Deadline) -> Any:
        self.check_thread()
        reply = BlockingReply()
        self.tell(item, reply)
        return self.wait(reply, deadline)

    def wait(self, reply: BlockingReply, deadline: Deadline) -> Any:
        """What `reply` brings, from the owner or from somebody who ends with it."""
        while True:
            left = deadline.left
            try:
                return reply.wait(min(left, _LOOK_S))
            except NoAnswerYet:
                self._look(left > _LOOK_S, deadline)

    async def ask_async(self, item: Any, timeout: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """The same for a task under asyncio or trio."""
        return await self.ask_async_by(item, Deadline(timeout))

    async def ask_async_by(self, item: Any, deadline: Deadline) -> Any:
        reply = AwaitableReply()
        self.tell(item, reply)
        while True:
            left = deadline.left
            try:
                return await reply.wait(min(left, _LOOK_S))
            except NoAnswerYet:
                self._look(left > _LOOK_S, deadline)

    def _look(self, time_left: bool, deadline: Deadline) -> None:
        """No answer yet: raise why, unless there is time left and an owner to wait for."""
        if not self.is_alive:
            raise self.health.gone()
        if not time_left:
            raise self.late(deadline)

    def late(self, deadline: Deadline) -> DispatchError:
        if self.health.store_problem:
            return StoreUnavailableError(
                f"the store is out of reach: {self.health.store_problem}; the command may or may not have happened"
            )
        return TimedOutError(f"no answer within {deadline.timeout:g} s; the command may or may not have happened")
