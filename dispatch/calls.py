"""One place that turns a call into a message for the owner and waits for the answer, in a thread or in a task."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import pykka

from dispatch.errors import DispatchError, NotRunningError, StoreUnavailableError, TimedOutError
from dispatch.owner import Health
from dispatch.reply import AwaitableReply, BlockingReply, Reply

DEFAULT_TIMEOUT_S = 30.0
_LOOK_S = 1.0  # how often a waiting caller makes sure that the owner still lives


class Line:
    """A way to the owner. Raises `NotRunningError` when there is none to answer."""

    def __init__(self) -> None:
        self.health = Health()
        self._owner: pykka.ActorRef[Any] | None = None
        self._thread: threading.Thread | None = None

    def open(self, owner: pykka.ActorRef[Any]) -> None:
        self._owner = owner

    def close(self) -> None:
        self._owner = None

    @property
    def is_open(self) -> bool:
        return self._owner is not None

    def tell(self, item: Any, reply: Reply | None = None) -> None:
        """Put a message into the owner's inbox, without waiting."""
        owner = self._owner
        if owner is None:
            raise self._gone()
        try:
            owner.tell((item, reply))
        except pykka.ActorDeadError:
            raise self._gone() from None

    def ask(self, item: Any, timeout: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """The owner's answer to `item`; blocks the calling thread for at most `timeout` seconds (None: no limit)."""
        assert threading.current_thread().name != "GraphOwner", "the owner must not wait for itself"
        reply = BlockingReply()
        self.tell(item, reply)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_S if end is None else end - time.monotonic()
            try:
                return reply.wait(max(0.0, min(left, _LOOK_S)))
            except TimeoutError:
                self._look(left > _LOOK_S or end is None, timeout)

    async def ask_async(self, item: Any, timeout: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """The same for a task under asyncio or trio."""
        reply = AwaitableReply()
        self.tell(item, reply)
        end = None if timeout is None else anyio.current_time() + timeout
        while True:
            left = _LOOK_S if end is None else end - anyio.current_time()
            try:
                return await reply.wait(max(0.0, min(left, _LOOK_S)))
            except TimeoutError:
                self._look(left > _LOOK_S or end is None, timeout)

    def _look(self, time_left: bool, timeout: float | None) -> None:
        """No answer yet: raise why, unless there is time left and an owner to wait for."""
        owner = self._owner
        if owner is None or not owner.is_alive():
            raise self._gone()
        if not time_left:
            raise self._late(timeout)

    def _late(self, timeout: float | None) -> DispatchError:
        if self.health.store_problem:
            return StoreUnavailableError(
                f"the store is out of reach: {self.health.store_problem}; the command may or may not have happened"
            )
        return TimedOutError(f"no answer within {timeout:g} s; the command may or may not have happened")

    def _gone(self) -> DispatchError:
        failure = self.health.failure
        error = NotRunningError(str(failure) if failure else "the service is not running; start() it first")
        error.__cause__ = failure
        return error
